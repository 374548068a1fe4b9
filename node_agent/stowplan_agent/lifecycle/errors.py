"""How a phase fails: with a stable reason and one sentence for the status."""

from __future__ import annotations

from stowplan_api.contract import PlacementReason


def in_words(error: BaseException) -> str:
    """What an error that nobody foresaw says, and what was noted of it on its way."""
    return "; ".join([f"{type(error).__name__}: {error}", *getattr(error, "__notes__", ())])


class StartError(RuntimeError):
    """A phase cannot go on. The message names the thing, the limit and the way out."""

    def __init__(self, reason: PlacementReason, message: str) -> None:
        """``reason`` goes into the condition, ``message`` into its text."""
        super().__init__(message)
        self.reason = reason


class RollbackFailed(StartError):  # noqa: N818 - a state of the start, named as the status names it
    """Nothing is known to be good any more: the process must end, so that the container restarts."""
