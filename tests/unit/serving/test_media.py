"""PNG and MP4 read back by their libraries say what went in."""

from __future__ import annotations

import io

import av
import numpy as np
import pytest
from PIL import Image

from stowplan_agent.serving.media import mp4, png


def colours(count: int, height: int = 48, width: int = 80) -> np.ndarray:
    frames = np.empty((count, height, width, 3), np.uint8)
    for index in range(count):
        frames[index, :, : width // 2] = (200 - index, 30 + 2 * index, 40)
        frames[index, :, width // 2 :] = (20, 60, 220 - 3 * index)
    return frames


def decoded(content: bytes) -> tuple[np.ndarray, av.VideoStream]:
    container = av.open(io.BytesIO(content))
    frames = [frame.to_ndarray(format="rgb24") for frame in container.decode(video=0)]
    return np.stack(frames), container.streams.video[0]


def test_png_is_lossless() -> None:
    frame = np.random.default_rng(0).integers(0, 256, (33, 47, 3), np.uint8)
    image = Image.open(io.BytesIO(png(frame)))
    assert image.format == "PNG"
    assert np.array_equal(np.asarray(image), frame)


@pytest.mark.parametrize("count", [1, 2, 17])
def test_mp4_has_every_frame_in_order_and_near_its_colours(count: int) -> None:
    frames = colours(count)
    back, stream = decoded(mp4(frames, fps=16))
    assert back.shape == frames.shape
    assert stream.average_rate == 16
    assert stream.codec_context.name == "h264"
    # 4:2:0 blurs the edge between the halves by a pixel or two; the flat parts must be right.
    flat = np.r_[4:36, 44:76]
    assert np.abs(back[:, :, flat].astype(int) - frames[:, :, flat]).max() <= 6


def test_mp4_says_which_colours_it_has() -> None:
    _, stream = decoded(mp4(colours(1), fps=8))
    assert int(stream.codec_context.colorspace) == 1  # BT.709
    assert int(stream.codec_context.color_primaries) == 1


def test_the_same_frames_give_the_same_bytes() -> None:
    assert mp4(colours(9), fps=16) == mp4(colours(9), fps=16)


@pytest.mark.parametrize(
    ("frames", "says"),
    [
        (np.zeros((2, 8, 9, 3), np.uint8), "must be even"),
        (np.zeros((0, 8, 8, 3), np.uint8), "shape"),
        (np.zeros((2, 8, 8, 4), np.uint8), "shape"),
        (np.zeros((2, 8, 8, 3), np.float32), "uint8"),
    ],
)
def test_what_cannot_be_encoded_is_named(frames: np.ndarray, says: str) -> None:
    with pytest.raises(ValueError, match=says):
        mp4(frames, fps=16)
