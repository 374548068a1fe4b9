"""The host memory that a rewrite may take, and the refusal of what goes beyond it."""

from __future__ import annotations

from stowplan_api.quantity import for_people


class RewriteError(RuntimeError):
    """A rewrite that is refused, with everything as it was before it. The message says what is short, or in the way."""


class Headroom:
    """Bytes that may be taken, less what has been; without a limit it grants everything."""

    def __init__(self, nbytes: int | None) -> None:
        """``nbytes``: the host memory that may be taken; None for no limit."""
        self._limit = nbytes
        self._taken = 0

    def check(self, component: str, nbytes: int, purpose: str) -> None:
        """Raises `RewriteError` where this many more bytes are more than what is left."""
        if self._limit is not None and nbytes > self._limit - self._taken:
            raise RewriteError(
                f"component {component}: {purpose} needs {_bytes(nbytes)} of host memory and "
                f"{_bytes(max(0, self._limit - self._taken))} of {_bytes(self._limit)} are left, so nothing was "
                "changed; give the pod more memory, or prepare a checkpoint with the adapter fused"
            )

    def take(self, component: str, nbytes: int, purpose: str) -> None:
        """Write bytes down that are about to be taken. Raises as `check` does."""
        self.check(component, nbytes, purpose)
        self._taken += nbytes


def _bytes(nbytes: int) -> str:
    return f"{nbytes} bytes ({for_people(nbytes)})"
