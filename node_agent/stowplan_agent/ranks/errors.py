"""What goes wrong between ranks: one sentence each, with the rank and the way out."""

from __future__ import annotations


class RanksError(RuntimeError):
    """Ranks that cannot go on together. The message is one sentence for a user."""


class NoPeerAccess(RanksError):  # noqa: N818 - there is none, and the name says so
    """Devices of these ranks cannot reach each other's memory: each rank fetches everything over its own link."""


class RankLost(RanksError):  # noqa: N818 - the rank is lost, and the name says so
    """Another rank is gone or silent. ``rank`` is which."""

    def __init__(self, rank: int, message: str) -> None:
        """``message`` says what was waited for, and how long."""
        self.rank = rank
        super().__init__(message)


def first_line(error: BaseException) -> str:
    """What an error says, for a message of one sentence; its kind where it says nothing."""
    return next((line for line in str(error).splitlines() if line.strip()), type(error).__name__)
