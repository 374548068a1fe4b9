"""Image to video: the image encoder and the VAE's first visit are intervals of their own, planned like any other."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from pipelines.sessions import link_of, session_of, shape_of
from starts import settings_of, start
from stowplan_agent.serving.requests import Refused

NAME = "tiny-image-to-video"


def test_conditioning_is_in_the_timeline_with_its_own_peaks(write_tiny: Callable[[str], Path]) -> None:
    with session_of(write_tiny(NAME)) as session:
        _, observations = session.watch(shape_of(NAME, 2), link_of(session))
        _, larger = session.watch(shape_of(NAME, 2, side=64), link_of(session))
    assert [(one.component, one.entry, one.passes) for one in observations if one.component] == [
        ("text_encoder", "forward", 2),  # with the prompt and without
        ("image_encoder", "forward", 1),
        ("vae", "encode", 1),
        ("transformer", "forward", 4),
        ("vae", "decode", 1),
    ]
    small, large = ({(one.component, one.entry): one for one in each} for each in (observations, larger))
    for entry in ("encode", "decode"):
        assert large["vae", entry].activation_bytes > 2 * small["vae", entry].activation_bytes
    seen = small["image_encoder", "forward"]
    assert large["image_encoder", "forward"].activation_bytes < 2 * seen.activation_bytes  # it sees 32x32 either way
    assert len(seen.layer_seconds["encoder.layers"]) == 5


def test_a_start_measures_plans_and_proves_it_and_the_door_says_what_is_missing(
    write_tiny: Callable[[str], Path],
) -> None:
    started = start(settings_of(write_tiny(NAME), "36Mi", shapes=["32x32x5@3"]))
    try:
        assert started.phase == "Ready", started.error
        record = started.startup.prepared.record
        assert record.workloads[0].input_images == 1
        assert [one.entry for one in record.intervals if one.component == "vae"] == ["encode", "decode"]
        assert started.status.validation is not None and started.status.validation.bit_equal
        with pytest.raises(Refused, match="WanImageToVideoPipeline begins with an image"):
            started.service().admit(started.request())
    finally:
        started.startup.close()
