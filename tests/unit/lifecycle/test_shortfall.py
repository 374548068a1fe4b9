"""Out of memory, told with numbers: from torch's own messages, the emulated card's, and those without any."""

from __future__ import annotations

import pytest
import torch

from stowplan_agent.accelerators.emulated import EmulatedAccelerator, EmulatedCard
from stowplan_agent.accelerators.shortage import first_sentence, shortage
from stowplan_agent.calibration import Machine
from stowplan_agent.lifecycle.shortfall import Shortfall
from stowplan_api.diffusion_deployment import Shape

MIB, GIB = 1 << 20, 1 << 30
FULL = (
    "CUDA out of memory. Tried to allocate 2.50 GiB. GPU 0 has a total capacity of 23.53 GiB of which 1.25 GiB is "
    "free. Including non-PyTorch memory, this process has 22.27 GiB memory in use. Of the allocated memory 21.50 GiB "
    "is allocated by PyTorch, and 112.34 MiB is reserved by PyTorch but unallocated. If reserved but unallocated "
    "memory is large try setting PYTORCH_CUDA_ALLOC_CONF=expandable_segments:True to avoid fragmentation."
)
CEILING = (
    "CUDA out of memory. Tried to allocate 512.00 MiB. GPU 0 has a total capacity of 139.81 GiB of which 135.02 GiB is "
    "free. Process 812 has 4.78 GiB memory in use. 4.00 GiB allowed; Of the allocated memory 3.50 GiB is allocated by "
    "PyTorch, and 256.00 MiB is reserved by PyTorch but unallocated. If reserved but unallocated memory is large try x."
)
POOLS = CEILING.replace(
    "PyTorch, and 256", "PyTorch, with 64.00 MiB allocated in private pools (e.g., CUDA Graphs), and 256"
)
MACHINE = Machine("node", "Test 24 GiB", 24 * GIB, GIB, None, 0, 0)
SHAPE = Shape(name="hd", width=832, height=480, frames=81, steps=40)


@pytest.mark.parametrize(
    ("message", "short"),
    [
        (FULL, round(1.25 * GIB)),
        (CEILING, 256 * MIB),
        (POOLS, 256 * MIB),
        ("Tried to allocate 8 bytes. GPU 1 has a total capacity of 1.00 GiB of which 0 bytes is free.", 8),
        # torch rounds: nothing may be left of the difference, but something was short.
        ("Tried to allocate 1.00 GiB. GPU 0 has a total capacity of 2.00 GiB of which 1.00 GiB is free.", 1),
        ("CUDA error: out of memory", None),
        ("", None),
    ],
)  # fmt: skip
def test_what_is_short_is_read_from_torchs_message(message: str, short: int | None) -> None:
    assert shortage(torch.OutOfMemoryError(message)) == short


@pytest.mark.parametrize(
    ("capacity", "asked", "short"), [(MIB, 2 * MIB, MIB), (64 * MIB, 65 * MIB, MIB), (MIB, MIB + 1, 1), (100, 200, 100)]
)
def test_the_emulated_card_words_it_as_torch_does(capacity: int, asked: int, short: int) -> None:
    card = EmulatedAccelerator(EmulatedCard(capacity_bytes=capacity, outside_bytes=0))
    try:
        with pytest.raises(torch.OutOfMemoryError) as caught:
            card.allocate(asked)
    finally:
        card.close()
    assert shortage(caught.value) == short


@pytest.mark.parametrize(
    ("message", "sentence"),
    [
        (FULL, "CUDA out of memory. Tried to allocate 2.50 GiB. GPU 0 has a total capacity of 23.53 GiB of which "
               "1.25 GiB is free"),
        ("CUDA error: out of memory\nwith advice", "CUDA error: out of memory with advice"),
        ("", "out of device memory"),
    ],
)  # fmt: skip
def test_numbers_without_advice(message: str, sentence: str) -> None:
    assert first_sentence(torch.OutOfMemoryError(message)) == sentence


def test_a_shortfall_keeps_words_and_no_traceback() -> None:
    short = Shortfall.of(torch.OutOfMemoryError(FULL), "interval vae.decode", SHAPE)
    assert short == Shortfall(
        "interval vae.decode", SHAPE, round(1.25 * GIB), first_sentence(torch.OutOfMemoryError(FULL))
    )


def test_the_sentence_names_interval_bytes_and_way_out() -> None:
    short = Shortfall("interval vae.decode", SHAPE, 1000, "")
    assert short.sentence("wan", MACHINE, reserve_bytes=GIB) == (
        "wan does not fit Test 24 GiB even with everything streamed: interval vae.decode at 832x480x81, 40 steps is at "
        f"least 1000 bytes short; give it at least 25 GiB ({25 * GIB + 1000} bytes) of device memory, or declare a "
        "smaller shape"
    )


def test_a_shape_that_is_not_to_blame_is_not_mentioned() -> None:
    short = Shortfall("interval text_encoder.forward", SHAPE, 1000, "", any_shape=True)
    assert short.sentence("wan", MACHINE, reserve_bytes=0) == (
        "wan does not fit Test 24 GiB even with everything streamed: interval text_encoder.forward is at least 1000 "
        f"bytes short; give it at least 24 GiB ({24 * GIB + 1000} bytes) of device memory"
    )


def test_an_error_without_numbers_is_quoted() -> None:
    short = Shortfall.of(torch.OutOfMemoryError("CUDA error: out of memory"), "loading")
    assert short.sentence("wan", MACHINE, reserve_bytes=0) == (
        "wan does not fit Test 24 GiB even with everything streamed: loading ran out of memory (CUDA error: out of "
        "memory); give it more than 24 GiB of device memory"
    )


@pytest.mark.parametrize(
    ("other", "same"),
    [
        (Shortfall("interval a", SHAPE, 5, "x"), True),
        (Shortfall("interval a", None, 5, "y"), True),
        (Shortfall("interval a", SHAPE, 6, "x"), False),
        (Shortfall("interval b", SHAPE, 5, "x"), False),
    ],
)
def test_two_shapes_that_lack_the_same_in_the_same_place(other: Shortfall, same: bool) -> None:
    assert Shortfall("interval a", SHAPE, 5, "x").same_as(other) is same


def test_without_numbers_nothing_is_known_to_be_the_same() -> None:
    unknown = Shortfall("interval a", SHAPE, None, "x")
    assert not unknown.same_as(unknown)
