"""What a request of any number of steps will call, found by running the pipeline's own loop without its networks.

Only the pipeline knows how often a request calls what: guidance, schedulers of second order, experts that take over at
a boundary of noise, steps without guidance. So its code is run as it is, with the declared steps, while each component
is answered for by zeros shaped like what it answered when it was watched (`answers`). No weight is read and no layer
runs: a rehearsal takes as long as the scheduler. A component that was never watched is answered for by a twin, another
component of the same class.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from typing import Any

import torch

from stowplan_agent.calibration.answers import Answer, Answers, methods_of, replaced

Call = tuple[str, str]
"""A component and its entry."""


class RehearsalError(RuntimeError):
    """The pipeline calls something that nothing is known of."""


class Rehearsal:
    """Answers for components, and notes who was called."""

    def __init__(self, modules: Mapping[str, torch.nn.Module], answers: Answers) -> None:
        """``answers`` are those of a watched request of the same shape."""
        self.calls: list[Call] = []
        self._modules = modules
        self._answers = answers
        self.twins = twins_of(modules)
        """For each component, those of the same kind."""

    @contextmanager
    def standing_in(self) -> Iterator[None]:
        """Within it, no component runs when it is called, and none of its hooks does."""
        with ExitStack() as undo:
            for name, module in self._modules.items():
                # What torch calls instead of a module's hooks and forward, if it is there (``Module.compile``).
                undo.enter_context(replaced(module, "_compiled_call_impl", self._stand_in(name, "forward")))
                for method, _ in methods_of(module):
                    undo.enter_context(replaced(module, method, self._stand_in(name, method)))
            yield

    def _stand_in(self, component: str, entry: str) -> Callable[..., Any]:
        def answer(*_args: Any, **_kwargs: Any) -> Any:
            number = self.calls.count((component, entry))
            self.calls.append((component, entry))
            return self._find(component, entry, number).made()

        return answer

    def _find(self, component: str, entry: str, number: int) -> Answer:
        for name in (component, *self.twins[component]):
            if (answer := self._answers.find(name, entry, number)) is not None:
                return answer
        raise RehearsalError(f"component {component} and none like it was called by {entry} while watched")


def twins_of(modules: Mapping[str, torch.nn.Module]) -> dict[str, Sequence[str]]:
    """For each component, the others with the same class and the same weights' shapes: experts of one another."""

    def kind(module: torch.nn.Module) -> object:
        return type(module), tuple((name, weight.shape) for name, weight in module.named_parameters())

    kinds = {name: kind(module) for name, module in modules.items()}
    return {name: [other for other in kinds if other != name and kinds[other] == kinds[name]] for name in kinds}
