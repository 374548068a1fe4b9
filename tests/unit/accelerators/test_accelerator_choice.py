"""Which accelerator a name stands for, and the one sentence for each name that stands for none."""

from __future__ import annotations

import pytest
import torch

from stowplan_agent.accelerators import open_accelerator
from stowplan_agent.accelerators.choice import AcceleratorError
from stowplan_agent.accelerators.emulated import EmulatedAccelerator


def test_an_emulated_card_is_what_its_variables_say() -> None:
    environment = {"STOWPLAN_EMULATED_PINNED_RATE": "3G", "STOWPLAN_EMULATED_FLOPS": "1e9", "OTHER": "x"}
    environment["STOWPLAN_EMULATED_PEER_RATE"] = "7G"
    card = open_accelerator("emulated", index=1, ceiling_bytes=48 << 20, environment=environment)
    try:
        assert isinstance(card, EmulatedAccelerator)
        assert card.capacity_bytes() == 48 << 20
        assert (card.card.pinned_rate, card.card.flops, card.card.peer_rate) == (3e9, 1e9, 7e9)
        assert card.product == "Emulated 48 MiB"
    finally:
        card.close()


@pytest.mark.parametrize(
    ("name", "ceiling", "environment", "message"),
    [
        ("tpu", 1 << 20, {}, "accelerator 'tpu' is unknown; choose cuda or emulated"),
        ("emulated", None, {}, "needs a device memory, such as 48Mi"),
        ("emulated", 1, {"STOWPLAN_EMULATED_FLOPS": "fast"}, "STOWPLAN_EMULATED_FLOPS: .*fast"),
        ("emulated", 1, {"STOWPLAN_EMULATED_PAGEABLE_RATE": "0"}, "STOWPLAN_EMULATED_PAGEABLE_RATE: .*above 0"),
    ],
)
def test_what_cannot_be_had_is_refused_in_one_sentence(
    name: str, ceiling: int | None, environment: dict[str, str], message: str
) -> None:
    with pytest.raises(AcceleratorError, match=message):
        open_accelerator(name, ceiling_bytes=ceiling, environment=environment)


def test_cuda_without_a_gpu_says_what_to_do(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
    with pytest.raises(AcceleratorError, match=r"no NVIDIA GPU is visible .* choose the emulated"):
        open_accelerator("cuda")


def test_a_gpu_that_there_is_not_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    monkeypatch.setattr(torch.cuda, "device_count", lambda: 2)
    with pytest.raises(AcceleratorError, match="there is no GPU 2: torch sees 2 here"):
        open_accelerator("cuda", index=2)
