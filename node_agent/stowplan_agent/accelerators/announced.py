"""An accelerator that says what it is about to do, so that faults can be put at every single operation.

Nothing is listed here: whatever the interface asks of a device is announced, what is added to it tomorrow included. An
announcement is an audit event of Python's (PEP 578), ``stowplan.allocate``, say; a listener that raises makes the
operation fail. The rooms that take memory of the host, read files, install hooks or write the status announce that in
the same way, each where it happens, and nobody pays for it where nobody listens.
"""

from __future__ import annotations

import sys
from collections.abc import Callable
from functools import wraps
from typing import Any, Final

from stowplan_agent.accelerators.interface import Accelerator

EVENT: Final = "stowplan."
"""What the name of every announcement begins with."""
NEVER_FAIL: Final = frozenset({"free", "let_go", "close"})
"""They only give back, and the interface promises that they do: announced like all others, never to be failed."""


def operations() -> frozenset[str]:
    """The names of what the interface asks of a device, but for mere properties."""
    return frozenset(
        name for name in Accelerator.__abstractmethods__ if not isinstance(getattr(Accelerator, name), property)
    )


def announce(accelerator: Accelerator) -> None:
    """Let this accelerator announce each of its operations from now on. Doing so again changes nothing."""
    for name in operations() - vars(accelerator).keys():
        setattr(accelerator, name, _announced(EVENT + name, getattr(accelerator, name)))


def _announced(event: str, operation: Callable[..., Any]) -> Callable[..., Any]:
    @wraps(operation)
    def run(*args: Any, **kwargs: Any) -> Any:
        sys.audit(event)
        return operation(*args, **kwargs)

    return run
