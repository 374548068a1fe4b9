"""A probe that runs out of memory, at every place in turn where one allocates: lighter, nothing lost, served."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from types import FrameType
from typing import Any

import pytest
import torch

from pipelines.sessions import link_of, session_of, shape_of
from starts import begin, settings_of
from stowplan_agent.accelerators.emulated import EmulatedAccelerator
from stowplan_agent.inventory import read_checkpoint
from stowplan_agent.inventory.frames import frame_contract
from stowplan_agent.lifecycle.probe import Probe, Probed
from stowplan_agent.lifecycle.shapes import work
from stowplan_agent.lifecycle.shortfall import Shortfall
from stowplan_agent.lifecycle.startup import Startup

Site = tuple[str, int]
"""File and line."""
BELOW = (f"{os.sep}torch{os.sep}", f"{os.sep}accelerators{os.sep}", f"{os.sep}weakref")
"""Whoever is in here allocates for somebody above."""


def site() -> Site:
    """Where the present allocation was asked for."""
    frame: FrameType | None = sys._getframe(2)
    while frame is not None and any(part in frame.f_code.co_filename for part in BELOW):
        frame = frame.f_back
    assert frame is not None
    return frame.f_code.co_filename, frame.f_lineno


@contextmanager
def allocations(accelerator: EmulatedAccelerator, heard: Callable[[Site], object]) -> Iterator[None]:
    """Hear of every allocation before it is made."""
    memory: Any = accelerator._memory
    plain = memory._check

    def check(nbytes: int) -> None:
        heard(site())
        plain(nbytes)

    memory._check = check
    try:
        yield
    finally:
        del memory._check


def failing_at(wanted: Site) -> Callable[[Site], None]:
    """Out of memory at the first allocation there, and nowhere else."""
    left = [wanted]

    def heard(at: Site) -> None:
        if at in left:
            left.clear()
            raise torch.OutOfMemoryError("injected: 1.00 MiB")

    return heard


def test_out_of_memory_at_each_allocation_site_returns_memory(tiny_wan: Path) -> None:
    shape = shape_of("tiny-wan", 1, side=16).model_copy(update={"frames": 1})  # nothing is lighter
    with session_of(tiny_wan) as session:
        link, contract = link_of(session), frame_contract(read_checkpoint(tiny_wan))
        reference, _ = session.watch(shape, link)
        sites: dict[Site, None] = {}
        with allocations(session.accelerator, sites.setdefault):
            session.watch(shape, link)
        assert len(sites) > 100
        assert {Path(file).parent.name for file, _ in sites} >= {"weights", "wan", "umt5", "schedulers", "autoencoders"}
        held = session.accelerator.counters()
        for at in sites:
            with allocations(session.accelerator, failing_at(at)):
                outcome = Probe(session, contract, link).measure(shape)
            assert isinstance(outcome, Shortfall) and outcome.any_shape, at
            session.check()
            now = session.accelerator.counters()
            # A request that got further than another leaves its last latents to the scheduler.
            assert now.weights == held.weights and now.allocated <= held.allocated, at
        again, _ = session.watch(shape, link)
        assert session.accelerator.counters().allocated == held.allocated  # nothing of all that has stayed
    assert again.digest == reference.digest


def test_out_of_memory_in_each_file_lightens(tiny_wan: Path) -> None:
    shape = shape_of("tiny-wan", 1)
    with session_of(tiny_wan) as session:
        link, contract = link_of(session), frame_contract(read_checkpoint(tiny_wan))
        sites: dict[str, Site] = {}
        with allocations(session.accelerator, lambda at: sites.setdefault(at[0], at)):
            session.watch(shape, link)
        for at in sites.values():
            with allocations(session.accelerator, failing_at(at)):
                outcome = Probe(session, contract, link).measure(shape)
            assert isinstance(outcome, Probed), at
            assert work(outcome.shape) < work(shape), at
            session.check()


@pytest.mark.parametrize(
    "where",
    ["modeling_umt5.py", "transformer_wan.py", "scheduling_unipc_multistep.py", "autoencoder_kl_wan.py", "slots.py"],
)
def test_a_start_whose_probe_ran_out_of_memory_serves_the_proven_seed_placement(where: str, tiny_wan: Path) -> None:
    startup, progress = begin(settings_of(tiny_wan, "64Mi"))
    failed: list[Site] = []

    def heard(at: Site) -> None:
        if not failed and at[0].endswith(where):
            failed.append(at)
            raise torch.OutOfMemoryError("injected: 1.00 MiB")

    probe = startup.preparation.probe

    def faulty() -> None:
        accelerator = startup.preparation.session.accelerator
        assert isinstance(accelerator, EmulatedAccelerator)
        with allocations(accelerator, heard):
            probe()

    startup.preparation.probe = faulty  # type: ignore[method-assign]
    try:
        assert startup.run() == "Ready", startup.error
        assert failed
        _served_seed(startup, progress)
    finally:
        startup.close()


def _served_seed(startup: Startup, progress: Any) -> None:
    conditions = {one.type: one for one in progress.status.conditions}
    assert startup.prepared.record.extrapolated
    assert startup.prepared.session.placement() == startup.prepared.seed
    applied, validated = conditions["Applied"], conditions["Validated"]
    assert (applied.status, applied.reason) == ("False", "Extrapolated")
    assert "ran out of memory" in applied.message
    assert validated.status == "True"
    assert "32x32x5" in conditions["Calibrated"].message or "did not fit" in conditions["Calibrated"].message
    assert progress.status.validation is not None and progress.status.validation.bit_equal
