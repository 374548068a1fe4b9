"""Lines of ranks, told apart: what a rank prints comes out of the supervisor with the rank's number before it. Pure."""

from __future__ import annotations

from typing import Final

LONGEST: Final = 64 << 10
"""Bytes of a line. One that is longer is cut into several, so that a rank cannot fill the supervisor's memory."""


class Prefixer:
    """Cuts one stream of one rank into whole lines."""

    def __init__(self, rank: int) -> None:
        """Nothing is read yet."""
        self._prefix = f"[rank {rank}] ".encode()
        self._rest = b""

    def feed(self, text: bytes) -> bytes:
        """The lines that are whole now, each with its prefix."""
        *lines, self._rest = (self._rest + text).split(b"\n")
        while len(self._rest) >= LONGEST:
            lines.append(self._rest[:LONGEST])
            self._rest = self._rest[LONGEST:]
        return b"".join(self._prefix + line + b"\n" for line in lines)

    def end(self) -> bytes:
        """What is left of a last line that has no end."""
        rest, self._rest = self._rest, b""
        return self._prefix + rest + b"\n" if rest else b""
