"""The emulated card's memory: one capacity for weights and activations, and every byte of either is seen."""

from __future__ import annotations

import gc

import pytest
import torch

from stowplan_agent.accelerators.emulated import EmulatedAccelerator

KIB = 1 << 10
CAPACITY = 1024 * KIB
"""Of the card in conftest.py, besides what is outside."""


def floats(nbytes: int) -> torch.Tensor:
    return torch.zeros(nbytes // 4)


def test_weights_fill_the_card_to_the_last_byte_and_not_one_more(card: EmulatedAccelerator) -> None:
    whole = card.allocate(CAPACITY)
    with pytest.raises(torch.OutOfMemoryError, match=r"ried to allocate 1 bytes.* of which 0 bytes is free"):
        card.allocate(1)
    assert card.counters().allocated == card.counters().weights == CAPACITY
    card.free(whole)
    assert card.counters().allocated == 0


def test_activations_are_charged_like_weights(card: EmulatedAccelerator) -> None:
    buffer = card.allocate(CAPACITY // 2)
    with card.running():
        kept = floats(CAPACITY // 4)
        with pytest.raises(torch.OutOfMemoryError):
            floats(CAPACITY // 2)
        assert card.counters().allocated == CAPACITY * 3 // 4
        del kept
    gc.collect()  # the error's traceback held the tensor that was refused
    card.free(buffer)
    assert card.counters().allocated == 0


def test_an_operation_with_several_results_that_does_not_fit_leaves_nothing_charged(card: EmulatedAccelerator) -> None:
    wide = torch.zeros(2, CAPACITY // 8)
    with card.running(), pytest.raises(torch.OutOfMemoryError):
        wide.max(dim=1, keepdim=True)[0].expand(2, CAPACITY // 8).clone().sort(dim=1)
    gc.collect()
    assert card.counters().allocated == 0


def test_peaks_of_weights_and_activations_are_told_apart(card: EmulatedAccelerator) -> None:
    with card.running():
        activations = floats(100 * KIB)
        del activations
        buffer = card.allocate(600 * KIB)
        small = floats(40 * KIB)
        del small
    counters = card.counters()
    assert (counters.peak, counters.activation_peak) == (640 * KIB, 100 * KIB)
    card.reset_peaks()
    assert (card.counters().peak, card.counters().activation_peak) == (600 * KIB, 0)
    card.free(buffer)


def test_views_and_in_place_operations_make_no_bytes(card: EmulatedAccelerator) -> None:
    with card.running():
        base = floats(8 * KIB)
        views = [base.view(2, -1), base[1:], base.reshape(4, -1).t(), base.detach(), base.expand(3, -1)]
        base.add_(1)
        base.view(-1)[0] = 2
        assert card.counters().allocated == 8 * KIB
        contiguous = views[2].contiguous()
        assert card.counters().allocated == 16 * KIB
        del base, views
        assert card.counters().allocated == 8 * KIB
        del contiguous
    assert card.counters().allocated == 0


def test_operations_outside_running_are_not_this_devices(card: EmulatedAccelerator) -> None:
    kept = floats(64 * KIB)
    assert card.counters().allocated == 0
    assert card.clock.compute == 0
    with card.running():
        kept.mul_(2)
    assert card.counters().allocated == 0
    assert card.clock.compute == pytest.approx(2 * 64 * KIB / card.card.memory_rate, rel=0.01)


def test_matrix_products_cost_their_floating_point_operations(card: EmulatedAccelerator) -> None:
    matrix = torch.ones(64, 64)
    with card.running():
        matrix @ matrix
    assert card.clock.compute == pytest.approx(2 * 64**3 / card.card.flops)


def test_a_weight_read_before_it_arrives_or_after_it_left_is_not_a_number(card: EmulatedAccelerator) -> None:
    buffer = card.allocate(KIB)
    assert buffer.view(torch.float32).isnan().all() and buffer.view(torch.bfloat16).isnan().all()
    card.wait(card.copy(buffer, torch.zeros(KIB, dtype=torch.uint8), pinned=True, after=None))
    assert not buffer.any()
    card.free(buffer)
    card.synchronize()
    assert buffer.view(torch.float16).isnan().all()
