"""The kill switch: from the moment it is thrown, no placement but the seed one is gone to or stayed with.

``STOWPLAN_DISABLE_AUTO_RESIDENCY`` throws it before the start; SIGUSR1 to the agent's process throws it at any moment
of one. Nothing takes it back but a new process.
"""

from __future__ import annotations

from typing import Final

THROWN: Final = "STOWPLAN_DISABLE_AUTO_RESIDENCY is set, or SIGUSR1 came"
"""Why, in a sentence's words."""


class KillSwitch:
    """Thrown once, from any thread or signal handler (so no lock is taken); asked as often as one likes."""

    def __init__(self, *, thrown: bool = False) -> None:
        """``thrown``: from the beginning."""
        self._thrown = thrown

    def throw(self) -> None:
        """No adjustment from now on."""
        self._thrown = True

    @property
    def thrown(self) -> bool:
        """Whether it was thrown."""
        return self._thrown
