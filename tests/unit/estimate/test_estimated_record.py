"""The formulas against what was measured, and the record that says of itself that nothing was."""

from __future__ import annotations

from pathlib import Path

import pytest

from stowplan_agent.estimate.cards import CARDS, card_named, sizes_of_cards
from stowplan_agent.estimate.record import estimated_record
from stowplan_agent.estimate.schedule import steps_of_first
from stowplan_agent.estimate.work import layer_seconds, token_activations
from stowplan_agent.inventory import read_checkpoint, take_inventory
from stowplan_agent.report.provenance import is_estimate
from stowplan_api.model import ContractError
from stowplan_api.record import CalibrationRecord, Workload

GIB = 1 << 30
MEASURED_LAYER = 702_755_840
"""Bytes of a layer of the Wan denoiser that was measured on an H200 (PLANNING.md, section 3)."""


def estimated(folder: Path, card: str, **fields: int) -> CalibrationRecord:
    checkpoint = read_checkpoint(folder)
    shape = {"width": 832, "height": 480, "frames": 81, "steps": 40, "prompt_tokens": 512} | fields
    workload = Workload.model_validate({"name": "clip", **shape})
    return estimated_record(checkpoint, take_inventory(checkpoint, "bfloat16"), card_named(card), workload)


@pytest.mark.parametrize(("tokens", "measured", "gib"), [(4_800, 0.2836, 0.56), (32_760, 3.072, 3.46)])
def test_the_formulas_are_near_the_denoiser_that_was_measured(tokens: int, measured: float, gib: float) -> None:
    a_pass = 40 * layer_seconds(card_named("h200"), MEASURED_LAYER, tokens, 5120)
    assert a_pass == pytest.approx(measured, rel=0.1)
    assert 1 <= token_activations(tokens, 5120) / (gib * GIB) <= 1.25


def test_a_whole_model_is_near_its_record(wan_folder: Path) -> None:
    """Against the record of the same model, shape and card, of which the denoiser was measured."""
    path = Path(__file__).parents[1] / "planning" / "records" / "wan22-t2v-a14b-h200.json"
    record, found = CalibrationRecord.read(path), estimated(wan_folder, "h200")
    assert [one.name for one in found.components] == [one.name for one in record.components]
    runs = {one.component: one.runs[0] for one in record.intervals if one.component}
    for interval in found.intervals:
        if interval.component in ("transformer", "transformer_2"):
            mine, theirs = interval.runs[0], runs[interval.component]
            assert mine.passes == theirs.passes
            assert sum(mine.layer_seconds["blocks"]) == pytest.approx(sum(theirs.layer_seconds["blocks"]), rel=0.1)
            assert mine.activation_bytes[0] == pytest.approx(theirs.activation_bytes[0], rel=0.15)
    total = sum(one.total_bytes() for one in found.components)
    assert total == pytest.approx(sum(one.total_bytes() for one in record.components), rel=0.05)


def test_it_says_that_nothing_was_measured(wan_folder: Path) -> None:
    found = estimated(wan_folder, "rtx-4090")
    assert is_estimate(found) and found.extrapolated
    assert found.provenance[0].startswith("ESTIMATE: nothing was measured")
    assert found.ranks[0].device == "RTX 4090 (estimated)"
    assert CalibrationRecord.from_json(found.to_json()) == found


def test_a_slower_card_and_a_larger_shape_take_longer(wan_folder: Path) -> None:
    def seconds(record: CalibrationRecord) -> float:
        return sum(sum(map(sum, one.runs[0].layer_seconds.values())) for one in record.intervals)

    fast, slow = estimated(wan_folder, "h200"), estimated(wan_folder, "rtx-4090")
    assert seconds(slow) > 4 * seconds(fast)
    assert seconds(estimated(wan_folder, "h200", frames=41)) < seconds(fast) / 2
    activations = [max(one.runs[0].activation_bytes) for one in fast.intervals]
    smaller = [max(one.runs[0].activation_bytes) for one in estimated(wan_folder, "h200", width=416).intervals]
    assert all(small <= large for small, large in zip(smaller, activations, strict=True))


@pytest.mark.parametrize(("shift", "first"), [(3, 13), (5, 17), (12, 26)])
def test_the_first_expert_takes_the_noisy_steps(shift: float, first: int) -> None:
    assert steps_of_first(40, 0.875, shift) == first


def test_a_card_is_found_however_it_is_written() -> None:
    assert card_named("rtx-4090") is card_named("RTX 4090") is card_named("rtx_4090") is card_named("rtx4090")
    with pytest.raises(ContractError, match="did you mean rtx-4090"):
        card_named("rtx-4091")
    with pytest.raises(ContractError, match="the table has rtx-4070-ti"):
        card_named("?")


def test_a_size_promises_what_every_card_of_it_has() -> None:
    sizes = sizes_of_cards(0, 1 << 50)
    assert sum(len(cards) for cards in sizes.values()) == len(CARDS)
    for size, cards in sizes.items():
        assert all(card.memory_bytes >= size and card.nominal_gb == cards[0].nominal_gb for card in cards)
    assert all(0.9 * card.nominal_gb * GIB < card.memory_bytes <= card.nominal_gb * GIB for card in CARDS)
