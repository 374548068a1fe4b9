"""Whether requests may enter: closed from the first moment, opened by the lifecycle after validation.

The second layer of the gate (KUBERNETES.md): with no operator at all, the readiness probe still fails until this boot's
placement is validated. Written by the lifecycle's thread, read by HTTP; each change replaces one frozen state, so that
a reader never sees the phase of one moment with the message of another.
"""

from __future__ import annotations

import threading
from dataclasses import dataclass, replace


@dataclass(frozen=True)
class DoorState:
    """What /health answers."""

    phase: str
    open: bool
    message: str


class Door:
    """The state of the door. All members are safe to use from any thread and never block for long."""

    def __init__(self, phase: str = "Pending", message: str = "the agent starts") -> None:
        self._lock = threading.Lock()
        self._state = DoorState(phase, open=False, message=message)

    @property
    def state(self) -> DoorState:
        """Phase, open and message of one moment."""
        return self._state

    @property
    def phase(self) -> str:
        """The start-up phase, as the status names it; set it when a phase begins."""
        return self._state.phase

    @phase.setter
    def phase(self, phase: str) -> None:
        with self._lock:
            self._state = replace(self._state, phase=phase)

    @property
    def message(self) -> str:
        """One sentence that says why the door is closed; empty when it is open."""
        return self._state.message

    @message.setter
    def message(self, message: str) -> None:
        with self._lock:
            self._state = replace(self._state, message=message)

    @property
    def open(self) -> bool:
        """Whether requests may enter."""
        return self._state.open

    def open_up(self) -> None:
        """Let requests in: the placement of this boot is validated."""
        with self._lock:
            self._state = replace(self._state, open=True, message="")

    def close(self, message: str) -> None:
        """Let no more requests in, and say why in one sentence."""
        with self._lock:
            self._state = replace(self._state, open=False, message=message)
