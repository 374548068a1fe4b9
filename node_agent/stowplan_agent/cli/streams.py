"""Standard streams that fail in one sentence: a full disk, a reader that went away, a stream closed from the start.

Whoever writes to standard output need not ask whether it is still there. Progress and errors are worth less than the
answer, so where standard error is gone, they are lost in silence.
"""

from __future__ import annotations

import errno
import io
import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, TextIO, cast

from stowplan_agent.cli.output import WENT_WRONG, err


class OutputGoneError(Exception):
    """Standard output cannot be written. No OSError, so that nobody on the way takes it for one of theirs."""


class _Guarded:
    """A stream of which a failed write is an `OutputGoneError`, or nothing at all for one that need not be read."""

    def __init__(self, stream: TextIO, *, needed: bool) -> None:
        self._stream, self._needed = stream, needed

    def write(self, text: str) -> int:
        """As of any stream."""
        try:
            return self._stream.write(text)
        except OSError as error:
            return self._failed(error)

    def flush(self) -> None:
        """As of any stream."""
        try:
            self._stream.flush()
        except OSError as error:
            self._failed(error)

    def _failed(self, error: OSError) -> int:
        if self._needed:
            raise OutputGoneError(error.strerror or str(error)) from None
        return 0

    def __getattr__(self, name: str) -> Any:
        return getattr(self._stream, name)


class _Closed(io.StringIO):
    """What Python leaves out when a process is started with a stream closed."""

    def write(self, text: str) -> int:
        """Always fails."""
        raise OSError(errno.EBADF, "it is closed")


@contextmanager
def guarded_streams() -> Iterator[None]:
    """Around a whole command: standard output that fails ends it with one sentence and exit code 1."""
    before = sys.stdout, sys.stderr
    sys.stdout = cast(TextIO, _Guarded(sys.stdout or _Closed(), needed=True))
    sys.stderr = cast(TextIO, _Guarded(sys.stderr or _Closed(), needed=False))
    try:
        try:
            yield
        finally:
            sys.stdout.flush()
    except OutputGoneError as error:
        _let_go(before[0])
        err.print(f"stowplan: standard output cannot be written ({error}); give it a file or a pipe that takes it all",
                  style="red", soft_wrap=True)  # fmt: skip
        raise SystemExit(WENT_WRONG) from None
    finally:
        sys.stdout, sys.stderr = before


def _let_go(stream: TextIO | None) -> None:
    """What is still buffered goes nowhere, or the interpreter would fail once more when it ends."""
    if stream is None:
        return
    nowhere = os.open(os.devnull, os.O_WRONLY)
    try:
        os.dup2(nowhere, stream.fileno())
    finally:
        os.close(nowhere)
