"""What is certain to run out of memory is not tried; what takes more where more is free is marked."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
import torch

from pipelines.sessions import link_of, session_of, shape_of
from starts import begin, settings_of
from stowplan_agent.calibration import Machine
from stowplan_agent.inventory import read_checkpoint
from stowplan_agent.inventory.frames import frame_contract
from stowplan_agent.lifecycle.foreseen import Foresight
from stowplan_agent.lifecycle.probe import Probe, Probed
from stowplan_agent.lifecycle.session import Session
from stowplan_agent.lifecycle.shapes import describe, work

MIB = 1 << 20


@contextmanager
def probing(folder: Path, capacity: int) -> Iterator[tuple[Probe, Session, Counter[str]]]:
    """A probe with foresight on a card of so many bytes, and what it tried."""
    tried: Counter[str] = Counter()
    with session_of(folder) as session:
        contract, link = frame_contract(read_checkpoint(folder)), link_of(session)
        outside = session.accelerator.outside_bytes()
        machine = Machine("node", "card", capacity, outside, MIB, 1 << 30, 1 << 30)
        plain: Any = session.watch

        def watch(shape: Any, *others: Any, **named: Any) -> Any:
            tried[describe(shape)] += 1
            return plain(shape, *others, **named)

        session.watch = watch  # type: ignore[method-assign]
        yield Probe(session, contract, link, Foresight(session, contract, link, machine)), session, tried


def test_a_hopeless_shape_is_not_tried_and_one_that_may_fit_is(tiny_wan: Path) -> None:
    declared = shape_of("tiny-wan", 2, side=128).model_copy(update={"frames": 17})
    bounded = shape_of("tiny-wan", 1)
    with probing(tiny_wan, 40 * MIB) as (probe, _, tried):
        assert isinstance(probe.warm(bounded), Probed)
        outcome = probe.measure(declared)
        assert isinstance(outcome, Probed)
        assert work(bounded) < work(outcome.shape) < work(declared)
        assert describe(declared) not in tried
        # What the estimate let through is no less than what the record says of the declared shape.
        assert max(one.activation_bytes for one in outcome.observations) > 24 * MIB
    with probing(tiny_wan, 1 << 30) as (probe, _, tried):
        probe.warm(bounded)
        probe.measure(declared)
        assert tried == {describe(bounded): 1, describe(declared): 1}


def test_what_is_foreseen_is_never_more_than_what_is_measured(tiny_wan: Path) -> None:
    bounded = shape_of("tiny-wan", 1, side=64)
    with probing(tiny_wan, 1 << 30) as (probe, session, _):
        warmed = probe.warm(bounded)
        assert isinstance(warmed, Probed) and probe._foresight is not None
        for side, frames in ((64, 5), (64, 13), (128, 9)):
            shape = bounded.model_copy(update={"width": side, "height": side, "frames": frames})
            card = session.watch(shape, link_of(session))[0].peak_bytes + MIB  # it fits beside the margin, just
            roomy = Foresight(session, probe._contract, link_of(session), _machine(session, card))
            # Predictions are within 5 %, on shapes whose prompt has more tokens than their picture.
            assert roomy.shortage(bounded, warmed.watched, shape) <= 0.05 * card, describe(shape)


def _machine(session: Session, capacity: int) -> Machine:
    return Machine("node", "card", capacity, session.accelerator.outside_bytes(), MIB, 1 << 30, 1 << 30)


def test_a_decoder_that_takes_what_is_free_is_marked_adaptive(tiny_wan: Path) -> None:
    startup, _ = begin(settings_of(tiny_wan, "64Mi"))
    preparation = startup.preparation
    try:
        for phase in (preparation.take_inventory, preparation.load, preparation.warm, preparation.probe):
            phase()
        assert not any(one.adaptive for one in preparation.prepared.record.intervals)
        vae = preparation.session.pipeline.modules()["vae"]
        vae.decoder.register_forward_pre_hook(lambda *_: setattr(vae, "kept", torch.zeros(8 * MIB, dtype=torch.uint8)))
        preparation.warm_again()
        marked = [one.component for one in preparation.prepared.record.intervals if one.adaptive]
        assert marked[0] == "vae"
    finally:
        startup.close()


@pytest.mark.parametrize("name", ["tiny-wan", "tiny-flux"])
def test_an_ordinary_pipeline_has_no_adaptive_interval(name: str, write_tiny: Any) -> None:
    startup, _ = begin(settings_of(write_tiny(name), "64Mi"))
    try:
        assert startup.run(until="WarmAgain") == "WarmAgain", startup.error
        assert not any(one.adaptive for one in startup.prepared.record.intervals)
    finally:
        startup.close()
