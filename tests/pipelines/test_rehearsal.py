"""Passes of the declared steps, counted without running a layer, are those of a full run: any pipeline and schedule."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch

from pipelines.sessions import ALL, link_of, session_of, shape_of
from stowplan_agent.calibration import Answers, at_target
from stowplan_agent.calibration.rehearsal import RehearsalError
from stowplan_agent.lifecycle.session import Session

SCHEDULES = [(shift, steps) for shift in (3.0, 5.0, 12.0) for steps in (1, 7, 10)]


def counts(observations: Any) -> list[tuple[str | None, str, int, int]]:
    return [(one.component, one.entry, one.calls, one.passes) for one in observations]


def counted(session: Session, name: str, watched_steps: int, steps: int) -> Any:
    """What a request of ``steps`` makes, from one of ``watched_steps``."""
    answers = Answers()
    _, watched = session.watch(shape_of(name, watched_steps), link_of(session), answers)
    before = session.engine.ledger.streamed_bytes
    rehearsal = session.rehearse(shape_of(name, steps), answers)
    assert session.engine.ledger.streamed_bytes == before  # no weight moved
    found = at_target(watched, rehearsal.calls, rehearsal.twins)
    assert found is not None
    return found


def reschedule(session: Session, shift: float) -> None:
    pipe: Any = session.pipeline._pipeline
    pipe.scheduler = type(pipe.scheduler).from_config(pipe.scheduler.config, flow_shift=shift)


@pytest.mark.parametrize("name", ALL)
def test_passes_of_every_pipeline_are_those_of_a_full_run(name: str, write_tiny: Callable[[str], Path]) -> None:
    with session_of(write_tiny(name)) as session:
        found = counted(session, name, 2, 9)
        _, full = session.watch(shape_of(name, 9), link_of(session))
    assert counts(found) == counts(full)


def test_two_experts_at_their_boundary_for_any_shift_and_steps(tiny_wan_two_experts: Path) -> None:
    name = "tiny-wan-two-experts"
    with session_of(tiny_wan_two_experts) as session:
        for shift, steps in SCHEDULES:
            reschedule(session, shift)
            found = counted(session, name, min(steps, 2), steps)
            _, full = session.watch(shape_of(name, steps), link_of(session))
            assert counts(found) == counts(full), (shift, steps)


@pytest.mark.parametrize(("shift", "first"), [(3.0, 13), (5.0, 17), (12.0, 26)])
def test_forty_steps_are_divided_as_the_schedule_says(shift: float, first: int, tiny_wan_two_experts: Path) -> None:
    with session_of(tiny_wan_two_experts) as session:
        reschedule(session, shift)
        found = counted(session, "tiny-wan-two-experts", 2, 40)
    passes = {one.component: one.passes for one in found if one.component}
    assert (passes["transformer"], passes["transformer_2"]) == (2 * first, 2 * (40 - first))


def test_an_expert_that_the_probe_never_ran_is_like_its_twin(tiny_wan_two_experts: Path) -> None:
    with session_of(tiny_wan_two_experts) as session:
        reschedule(session, 12.0)
        answers = Answers()
        _, watched = session.watch(shape_of("tiny-wan-two-experts", 1), link_of(session), answers)
        assert "transformer_2" not in {one.component for one in watched}
        rehearsal = session.rehearse(shape_of("tiny-wan-two-experts", 10), answers)
        found = at_target(watched, rehearsal.calls, rehearsal.twins)
        _, full = session.watch(shape_of("tiny-wan-two-experts", 10), link_of(session))
    assert found is not None
    assert counts(found) == counts(full)
    first, second = (next(one for one in found if one.component == name) for name in ("transformer", "transformer_2"))
    assert second.layer_seconds == first.layer_seconds
    measured = next(one for one in full if one.component == "transformer_2")
    assert second.activation_bytes == pytest.approx(measured.activation_bytes, rel=0.05)


def test_guidance_is_one_pass_or_two(tiny_wan: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from stowplan_agent.lifecycle import session as module

    plain = module.request_of
    with session_of(tiny_wan) as session:
        for guidance, passes in ((5.0, 18), (1.0, 9)):
            request = {"guidance": guidance}
            monkeypatch.setattr(module, "request_of", lambda shape, request=request: replace(plain(shape), **request))
            found = counted(session, "tiny-wan", 2, 9)
            assert next(one.passes for one in found if one.component == "transformer") == passes


def test_a_rehearsal_leaves_components_memory_and_outputs_as_they_were(tiny_wan: Path) -> None:
    with session_of(tiny_wan) as session:
        answers, shape = Answers(), shape_of("tiny-wan", 2)
        reference, _ = session.watch(shape, link_of(session), answers)
        held = session.accelerator.counters().allocated
        attributes = {name: set(vars(module)) for name, module in session.pipeline.modules().items()}
        session.rehearse(shape_of("tiny-wan", 5), answers)
        assert {name: set(vars(module)) for name, module in session.pipeline.modules().items()} == attributes
        again, _ = session.watch(shape, link_of(session))
        assert session.accelerator.counters().allocated == held  # the scheduler keeps a time for each step
    assert again.digest == reference.digest


def test_answers_hold_no_tensor_and_make_what_was_answered(tiny_wan: Path) -> None:
    with session_of(tiny_wan) as session:
        vae = session.pipeline.modules()["vae"]
        answers = Answers()
        with torch.no_grad(), answers.heard({"vae": vae}), session.engine.request():
            real = vae.encode(torch.zeros(1, 3, 1, 32, 32))
        kept = answers.find("vae", "encode", 0)
    assert kept is not None
    made = kept.made()
    assert type(made) is type(real)
    assert made.latent_dist.mean.shape == real.latent_dist.mean.shape
    assert not made.latent_dist.mean.any()
    assert made.latent_dist.sample().shape == real.latent_dist.sample().shape


def test_what_nobody_answered_is_named(tiny_wan: Path) -> None:
    with session_of(tiny_wan) as session, pytest.raises(RehearsalError, match="text_encoder"):
        session.rehearse(shape_of("tiny-wan", 5), Answers())
