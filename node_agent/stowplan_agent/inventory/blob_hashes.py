"""Compare what was downloaded with the hashes that the hub states, once a file.

In the cache of huggingface_hub each file of a snapshot is a link to a blob that is named by its hash: SHA-256 for large
files (Git LFS), the SHA-1 of a Git blob for small ones. The library compares sizes only. Hashing reads each file once,
at 0.5 to 2 GB/s on each of several threads; that a blob was found right is noted beside it, with size and time.
"""

from __future__ import annotations

import hashlib
import os
import re
from collections.abc import Iterable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from stowplan_agent.inventory.errors import InventoryError

CHUNK: Final = 16 << 20
NAMES: Final = {40: "sha1", 64: "sha256"}
"""The kind of hash by the number of its hexadecimal digits."""
VERIFIED: Final = "stowplan-verified"
"""Folder of the notes, in the repository's folder of the cache."""


@dataclass(frozen=True)
class BlobCheck:
    """The files of one snapshot ``folder``, called ``source`` in messages."""

    source: str
    folder: Path

    def run(self) -> None:
        """Check every file that was not checked before. Raises `InventoryError` naming those that are not right."""
        files = sorted(path for path in self.folder.rglob("*") if path.is_file() and _stated_hash(path))
        with ThreadPoolExecutor(max_workers=min(8, os.cpu_count() or 1)) as pool:
            wrong = [path for path, right in zip(files, pool.map(self._is_right, files), strict=True) if not right]
        if wrong:
            raise InventoryError(self._refuse(wrong))

    def _is_right(self, path: Path) -> bool:
        note = self.folder.parents[1] / VERIFIED / path.resolve().name
        state = path.stat()
        stamp = f"{state.st_size} {state.st_mtime_ns}"
        try:
            if note.read_text(encoding="ascii") == stamp:
                return True
        except OSError:
            pass  # not checked yet
        if not has_hash(path, path.resolve().name):
            return False
        try:
            note.parent.mkdir(exist_ok=True)
            note.write_text(stamp, encoding="ascii")
        except OSError:
            pass  # a cache that cannot be written to is checked at every start
        return True

    def _refuse(self, wrong: Iterable[Path]) -> str:
        names = []
        for path in wrong:
            names.append(str(path.relative_to(self.folder)))
            try:
                path.resolve().unlink()
                path.unlink()
            except OSError as error:
                names[-1] += f" (which cannot be removed: {error.strerror})"
        verb = "does" if len(names) == 1 else "do"
        return (
            f"{self.source}: {', '.join(names)} {verb} not have the hash that the hub states, and was removed from the "
            "cache; start again to download it once more"
        )


def _stated_hash(path: Path) -> str | None:
    """The hash that a file's blob is named by; None where the cache has no blobs (file systems without links)."""
    name = path.resolve().name
    return name if path.is_symlink() and len(name) in NAMES and re.fullmatch("[0-9a-f]+", name) else None


def has_hash(path: Path, stated: str) -> bool:
    """Whether a file has the hash, which the hub ``stated``: SHA-1 of a Git blob, or SHA-256, told by its length."""
    size = path.stat().st_size
    is_git = len(stated) == 40
    digest = hashlib.sha1(f"blob {size}\0".encode(), usedforsecurity=False) if is_git else hashlib.sha256()
    with path.open("rb", buffering=0) as file:
        while chunk := file.read(CHUNK):
            digest.update(chunk)
    return digest.hexdigest() == stated
