"""Lines of ranks, told apart: what a rank prints comes out of the supervisor with the rank's number before it."""

from __future__ import annotations

import os
from typing import BinaryIO, Final

LONGEST: Final = 64 << 10
"""Bytes of a line. One that is longer is cut into several, so that a rank cannot fill the supervisor's memory."""
CHUNK: Final = 64 << 10


class Prefixer:
    """Cuts one stream of one rank into whole lines. Pure."""

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


class RankOutput:
    """One stream of one rank, on its way to this process's own. ``descriptor`` is set to not blocking."""

    def __init__(self, rank: int, descriptor: int, to: BinaryIO) -> None:
        """Nothing is read yet."""
        os.set_blocking(descriptor, False)
        self.descriptor = descriptor
        self._to = to
        self._prefixer = Prefixer(rank)

    def pass_on(self) -> bool:
        """Read what is there; False once there will be no more."""
        try:
            while text := os.read(self.descriptor, CHUNK):
                self._write(self._prefixer.feed(text))
        except BlockingIOError:
            return True
        self._write(self._prefixer.end())
        return False

    def _write(self, text: bytes) -> None:
        if text:
            self._to.write(text)
            self._to.flush()
