"""A folder of this process alone for what requests made, which is gone when the process is.

Everybody's folder is in one place (``TMPDIR``), and outlives a process that was killed: on a cluster the volume stays
when a container restarts. So each process holds a lock on its own, which the kernel drops with the process, and removes
the folders that nobody holds any more.
"""

from __future__ import annotations

import fcntl
import logging
import os
import shutil
import tempfile
import weakref
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Final

PREFIX: Final = "stowplan-results-"
_LOCK: Final = ".lock"
_log = logging.getLogger(__name__)


class ResultsFolder:
    """Made at the first use. `close` removes it with all that is in it; so do the end of the object and the exit."""

    def __init__(self, parent: Path | None = None) -> None:
        """``parent``: an existing directory; by default the one for temporary files."""
        self._parent = Path(tempfile.gettempdir()) if parent is None else parent
        self._path: Path | None = None
        self._remove: weakref.finalize[[Path, int], ResultsFolder] | None = None

    @property
    def path(self) -> Path:
        """Where files go. Raises OSError where no folder can be made."""
        if self._path is None:
            remove_abandoned(self._parent)
            self._path, held = _locked(self._parent)
            self._remove = weakref.finalize(self, _removed, self._path, held)
        return self._path

    @property
    def exists(self) -> bool:
        """Whether it was made and nobody has removed it since."""
        return self._path is not None and self._path.is_dir()

    def write(self, names: Sequence[str], parts: Sequence[bytes], files: list[Path]) -> None:
        """Write a file a part, named in ``files`` before there is a byte of it. Raises OSError.

        Where somebody who cleans up has removed the folder, another is made.
        """
        try:
            self._write(names, parts, files)
        except FileNotFoundError:
            _log.warning("the folder of results is gone, with all that was kept in it; another is made")
            self.close()
            self._write(names, parts, files)

    def close(self) -> None:
        """Remove it. The next use makes another."""
        if self._remove is not None:
            self._remove()
        self._path = self._remove = None

    def _write(self, names: Sequence[str], parts: Sequence[bytes], files: list[Path]) -> None:
        files[:] = [self.path / name for name in names]
        for path, part in zip(files, parts, strict=True):
            path.write_bytes(part)


def remove_files(files: Iterable[Path]) -> None:
    """Remove each. One that cannot be removed is logged: on a disk that fails it goes with its folder, if at all."""
    for path in files:
        try:
            path.unlink(missing_ok=True)
        except OSError as error:
            _log.warning("%s cannot be removed: %s", path, error.strerror or error)


def remove_abandoned(parent: Path) -> None:
    """Remove this user's folders whose process is gone. What cannot be removed is left: it is in nobody's way."""
    for folder in parent.glob(f"{PREFIX}*"):
        try:
            if folder.is_symlink() or folder.stat().st_uid != os.getuid():
                continue
            held = os.open(folder / _LOCK, os.O_RDWR)
        except OSError:
            continue
        try:
            fcntl.flock(held, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError:
            os.close(held)
        else:
            _removed(folder, held)
            _log.info("removed %s, which an earlier process left", folder.name)


def _locked(parent: Path) -> tuple[Path, int]:
    """A new folder and the descriptor that holds its lock."""
    while True:
        path = Path(tempfile.mkdtemp(prefix=PREFIX, dir=parent))
        held = os.open(path / _LOCK, os.O_RDWR | os.O_CREAT, 0o600)
        try:
            fcntl.flock(held, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError:  # somebody took it for abandoned in between, and removes it
            os.close(held)
        else:
            return path, held


def _removed(path: Path, held: int) -> None:
    shutil.rmtree(path, ignore_errors=True)
    os.close(held)
