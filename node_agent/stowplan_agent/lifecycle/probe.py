"""Measuring a shape in a few steps, or the largest lighter one that fits: frames are given up first, then area.

What the declared steps will call is counted in a rehearsal, which runs no component; only a pipeline that cannot be
rehearsed has to run all of its steps. Warm-up and probe both come here, so that the probe begins at a size that the
warm-up has shown to fit. Where two sizes fail in the same place for want of the same bytes, the shape is not to blame
and no smaller one is tried.
"""

from __future__ import annotations

import logging
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Final

import torch

from stowplan_agent.calibration import (
    Answers,
    CalibrationError,
    Observation,
    Sample,
    at_target,
    extrapolate,
    with_fragmentation,
)
from stowplan_agent.inventory.frames import FrameContract
from stowplan_agent.lifecycle.errors import StartError
from stowplan_agent.lifecycle.foreseen import Foresight
from stowplan_agent.lifecycle.session import Session
from stowplan_agent.lifecycle.shapes import area, describe, lighter, short, work
from stowplan_agent.lifecycle.shortfall import Shortfall
from stowplan_agent.pipeline.request import Stopped
from stowplan_agent.transaction import Measured
from stowplan_api.contract import PlacementReason
from stowplan_api.diffusion_deployment import Shape
from stowplan_api.record import Link, Workload

_log = logging.getLogger(__name__)
WARM_TRIES: Final = 4
"""RUNTIME.md, Warm: the bounded shape, and lighter ones at most 3 times."""


@dataclass(frozen=True)
class Probed:
    """What one request gave."""

    shape: Shape
    """What ran: the declared shape in a few steps, or a lighter one."""
    measured: Measured
    watched: Sequence[Observation]
    """Of the request that ran."""
    observations: Sequence[Observation]
    """Of the declared request: worked out from what was watched where that was shorter or lighter."""
    answers: Answers


class Probe:
    """Runs watched requests in the placement in force."""

    def __init__(
        self, session: Session, contract: FrameContract, link: Link, foresight: Foresight | None = None
    ) -> None:
        """``contract`` says which lighter shapes there are, ``foresight`` which are certain not to fit."""
        self._session = session
        self._contract = contract
        self._link = link
        self._fits: int | None = None
        """Pixels over all frames that fitted where more did not; None while everything has fitted."""
        self._foresight = foresight
        self.warmed: Probed | None = None
        """The bounded request, once it has run: what the allocator takes beside activations, and no seconds."""

    def warm(self, shape: Shape) -> Probed | Shortfall:
        """The shape, or a lighter one; what was short where none fits."""
        outcome = self._largest(shape, WARM_TRIES, fresh=True)
        self.warmed = outcome if isinstance(outcome, Probed) else None
        return outcome

    def measure(self, shape: Shape) -> Probed | Shortfall:
        """The shape at its size; where that does not fit, what it would need, from two lighter requests."""
        probed = self._largest(self._worth_a_try(short(shape)))
        if isinstance(probed, Shortfall):
            return probed
        probed = self.with_steps(probed, shape.steps)
        if work(probed.shape) == work(shape):
            return probed
        measured = Sample(work(probed.shape), probed.observations)
        smaller = self._second_sample(probed.shape, shape.steps)
        return replace(probed, observations=extrapolate(measured, smaller, work(shape)))

    def with_steps(self, probed: Probed, steps: int) -> Probed:
        """What a request of so many steps would have given. Raises `StartError`, and `Stopped`."""
        if probed.shape.steps == steps:
            return probed
        shape = probed.shape.model_copy(update={"steps": steps})
        try:
            rehearsal = self._session.rehearse(shape, probed.answers)
        except Stopped:
            raise
        except Exception as error:  # a pipeline's code was run in a way that it was not written for
            _log.warning("no rehearsal, so that all %d steps are run: %s: %s", steps, type(error).__name__, error)
        else:
            observations = at_target(probed.watched, rehearsal.calls, rehearsal.twins)
            if observations is not None:
                return replace(probed, observations=observations)
        whole = self._attempt(shape)
        if isinstance(whole, Shortfall):
            message = f"{describe(shape)} ran out of memory at {whole.running}, where fewer steps did not"
            raise StartError(PlacementReason.OUT_OF_MEMORY, message)
        return whole

    def _largest(self, shape: Shape, tries: int | None = None, *, fresh: bool = False) -> Probed | Shortfall:
        tried, count = self._no_larger(shape), 0
        short: tuple[Shape, Shortfall] | None = None
        while True:
            outcome = self._attempt(tried, fresh=fresh)
            if isinstance(outcome, Probed):
                if tried != shape:
                    self._fits = work(tried)
                return outcome
            smaller, count = lighter(tried, self._contract), count + 1
            # Frames are given up before area: the same shortage on less area is due to neither.
            blameless = short is not None and outcome.same_as(short[1]) and area(tried) < area(short[0])
            if smaller is None or blameless:
                return replace(outcome, any_shape=True)
            if count == tries:
                return outcome
            tried, short = smaller, (tried, outcome)

    def _attempt(self, shape: Shape, *, fresh: bool = False) -> Probed | Shortfall:
        try:
            answers = Answers()
            measured, observations = self._session.watch(shape, self._link, answers, fresh=fresh)
        except torch.OutOfMemoryError as error:
            # One answer for all ranks: what is tried next follows from it.
            running = self._session.company.gather("where memory ran out", self._session.running)[0]
            short = Shortfall.of(error, running, shape)
            _log.info("out of memory at %s: %s: %s", describe(shape), short.running, short.detail)
            return short
        except CalibrationError as error:
            raise StartError(PlacementReason.MODEL_INVALID, str(error)) from error
        if self.warmed is not None:
            observations = with_fragmentation(observations, self.warmed.watched)
        return Probed(shape, measured, observations, observations, answers)

    def _second_sample(self, shape: Shape, steps: int) -> Sample | None:
        """A still lighter request, where there is one: it fits, since a heavier one did."""
        smaller = lighter(shape, self._contract)
        if smaller is None:
            return None
        second = self._attempt(smaller)
        if isinstance(second, Shortfall):  # memory that came and went: one sample has to do
            return None
        return Sample(work(smaller), self.with_steps(second, steps).observations)

    def _worth_a_try(self, shape: Shape) -> Shape:
        """The shape, or the largest lighter one that may fit; none below what was warmed up with, which did fit."""
        warmed, foresight = self.warmed, self._foresight
        while warmed is not None and foresight is not None and work(shape) > work(warmed.shape):
            own = foresight.shortage(warmed.shape, warmed.watched, shape)
            shortage = self._session.company.most("bytes that are certain to be short", own)
            smaller = lighter(shape, self._contract)
            if not shortage or smaller is None or work(smaller) < work(warmed.shape):
                break
            _log.info("%s is not tried: it would be short of %d bytes at least", describe(shape), shortage)
            shape = smaller
        return shape

    def _no_larger(self, shape: Shape) -> Shape:
        """The shape, lightened to what is known to fit."""
        while self._fits is not None and work(shape) > self._fits:
            smaller = lighter(shape, self._contract)
            if smaller is None:
                break
            shape = smaller
        return shape


def workload_of(shape: Shape, *, prompt_tokens: int | None = None, input_images: int = 0) -> Workload:
    """A declared shape as a record names it, with what a request of it was measured with besides."""
    return Workload(
        name=shape.name,
        weight=shape.weight,
        width=shape.width,
        height=shape.height,
        frames=shape.frames,
        steps=shape.steps,
        prompt_tokens=prompt_tokens,
        input_images=input_images,
    )
