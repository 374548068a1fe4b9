"""The states of the gate's model (`gate_model`): what each party knows at one moment, and what is varied."""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

from stowplan_operator.decide.gate import Gate, judge
from stowplan_operator.placement import PlacementView
from stowplan_operator.pod import PodView

Judge = Callable[[PodView, PlacementView | None], Gate]


class Pod(NamedTuple):
    """What the API server holds of the pod."""

    uid: int = 1
    boot: int = 0
    """Running since this boot, as the kubelet reported it; 0: not running."""
    probe: bool = False
    """Whether its containers are ready, as the kubelet reported it."""
    gate: bool | None = None

    @property
    def ready(self) -> bool:
        """The kubelet's rule: containers ready, and every gate True."""
        return self.probe and self.gate is True


class Report(NamedTuple):
    """The ResidencyPlacement: whose it is, and what the agent said last; boot 0: nothing yet."""

    uid: int
    boot: int = 0
    validated: bool = False
    other_generation: bool = False


class Write(NamedTuple):
    """A patch of the gate on its way."""

    judged: Pod
    open: bool


class Operator(NamedTuple):
    """One operator: what its watches have told it, and its write that is under way."""

    up: bool = True
    pod: Pod | None = None
    report: Report | None = None
    write: Write | None = None


class World(NamedTuple):
    """Everything at one moment."""

    operators: tuple[Operator, ...]
    pod: Pod = Pod()
    report: Report | None = None
    boot: int = 0
    """The process that really runs; 0: none."""
    born: int = 0
    """Boots so far."""
    proven: frozenset[int] = frozenset()
    """Boots that really validated, whoever knows of it."""
    ghost: Report | None = None
    """A status on its way whose sender may be dead."""


class Rules(NamedTuple):
    """What is varied: the judge under test, an honest or a lying probe, and whether an opening is guarded."""

    judge: Judge = judge
    honest_probe: bool = True
    guarded: bool = True
    other_generation: bool = False
    """Whether the agent speaks of a generation that is not its pod's."""
    boots: int = 2
    pods: int = 2
    ghosts: bool = True
    """Whether a status may arrive after its sender's death."""
