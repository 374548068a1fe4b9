"""Frames to files: PNG for an image, H.264 in MP4 for a video.

The same frames give the same bytes on the same library versions: one encoder thread, and no clock in the file. Colours
are converted with BT.709 and tagged so: an untagged file is read as BT.601 by some players and as BT.709 by others, and
looks different in each.
"""

from __future__ import annotations

import io

import av
from av.video.reformatter import ColorRange, Colorspace
from PIL import Image

from stowplan_agent.serving.requests import Frames

# crf 16 is visually lossless; veryfast keeps one thread ahead of any diffusion model that feeds it.
_X264 = {
    "preset": "veryfast",
    "crf": "16",
    "threads": "1",
    "x264-params": "colorprim=bt709:transfer=bt709:colormatrix=bt709:range=tv",
}


def check_frames(frames: Frames) -> None:
    """Raise ValueError, in one sentence, unless the array is uint8 RGB of shape [f, h, w, 3] with f, h, w >= 1."""
    if frames.dtype.name != "uint8" or frames.ndim != 4 or frames.shape[3] != 3 or 0 in frames.shape:
        raise ValueError(
            f"frames are {frames.dtype} of shape {list(frames.shape)}; they must be uint8 of shape [f, h, w, 3]"
        )


def png(frame: Frames) -> bytes:
    """One frame, uint8 [h, w, 3], as a PNG file: lossless, no metadata."""
    check_frames(frame[None])
    buffer = io.BytesIO()
    Image.fromarray(frame).save(buffer, "PNG")
    return buffer.getvalue()


def mp4(frames: Frames, fps: int) -> bytes:
    """Frames, uint8 [f, h, w, 3], as an H.264 MP4 (yuv420p) of ``fps`` frames a second.

    Raises ValueError for odd sizes: 4:2:0 has one colour sample for every 2x2 pixels, and no player shows less common
    layouts everywhere.
    """
    check_frames(frames)
    _, height, width, _ = frames.shape
    if height % 2 or width % 2:
        raise ValueError(f"a video of {width}x{height} cannot be encoded; width and height must be even")
    buffer = io.BytesIO()
    with av.open(buffer, "w", format="mp4", options={"fflags": "+bitexact"}) as container:
        stream = container.add_stream("libx264", rate=fps, options=_X264)
        stream.width, stream.height, stream.pix_fmt = width, height, "yuv420p"
        stream.codec_context.flags |= av.codec.context.Flags.bitexact
        for pixels in frames:
            frame = av.VideoFrame.from_ndarray(pixels, format="rgb24").reformat(
                format="yuv420p", dst_colorspace=Colorspace.ITU709, dst_color_range=ColorRange.MPEG
            )
            container.mux(stream.encode(frame))
        container.mux(stream.encode(None))
    return buffer.getvalue()
