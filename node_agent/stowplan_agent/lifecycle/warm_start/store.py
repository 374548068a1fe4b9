"""A directory of stored starts, one file a fingerprint, each there whole or not at all.

It may be a ConfigMap's mount (read-only, its files links), a volume that several pods share, or a local folder. No way
in which it fails may fail a start: finding answers with a reason, keeping with a sentence.
"""

from __future__ import annotations

import contextlib
import os
import stat
import uuid
from collections.abc import Mapping
from pathlib import Path
from typing import Final

from stowplan_agent.lifecycle.warm_start.key import differences, fingerprint_of
from stowplan_agent.lifecycle.warm_start.stored_start import StoredStart
from stowplan_api.model import ContractError

SUFFIX: Final = ".json"
LARGEST: Final = 8 << 20
"""Bytes of a file that is read at all: a ConfigMap ends at 1 MiB."""
LOOKED_AT: Final = 16
"""Other files that are looked into, newest first, to say what differs."""


class Store:
    """Finds and keeps stored starts in one directory."""

    def __init__(self, directory: Path) -> None:
        """Nothing is read or made yet."""
        self.directory = directory

    def find(self, facts: Mapping[str, str]) -> StoredStart | str:
        """The stored start of these facts; or, in a few words, why there is none."""
        path = self._path(fingerprint_of(facts))
        try:
            return self._read(path, facts)
        except FileNotFoundError:
            return self._closest(facts)
        except OSError as error:
            return f"{path} cannot be read ({error.strerror})"
        except ContractError as error:
            return str(error)

    def keep(self, start: StoredStart) -> str | None:
        """Write it, in place of an earlier one of its fingerprint; what went wrong, if anything did."""
        path = self._path(start.fingerprint)
        draft = path.with_name(f".{path.name}.{uuid.uuid4().hex}")
        try:
            self.directory.mkdir(parents=True, exist_ok=True)
            with draft.open("x", encoding="utf-8") as file:
                file.write(start.text())
                file.flush()
                os.fsync(file.fileno())
            draft.replace(path)
            _sync(self.directory)
        except OSError as error:
            with contextlib.suppress(OSError):
                draft.unlink(missing_ok=True)
            return f"{path} cannot be written ({error.strerror}); the next start measures anew"
        return None

    def forget(self, fingerprint: str) -> None:
        """Take away one that did not hold, where the directory allows it."""
        with contextlib.suppress(OSError):
            self._path(fingerprint).unlink(missing_ok=True)

    def _path(self, fingerprint: str) -> Path:
        return self.directory / f"{fingerprint}{SUFFIX}"

    def _read(self, path: Path, facts: Mapping[str, str]) -> StoredStart:
        start = StoredStart.parse(_text(path), str(path))
        if start.facts != dict(facts):
            raise ContractError(f"{path}: is of another start: {differences(start.facts, facts)}")
        if start.fingerprint != path.stem:
            raise ContractError(f"{path}: says that its fingerprint is {start.fingerprint}, and its facts have another")
        return start

    def _closest(self, facts: Mapping[str, str]) -> str:
        """No file has this fingerprint: what sets the others apart, if one of them is of this model."""
        try:
            paths = [path for path in self.directory.iterdir() if path.suffix == SUFFIX and path.name[0] != "."]
            newest = sorted(paths, key=lambda path: path.stat().st_mtime, reverse=True)[:LOOKED_AT]
        except FileNotFoundError:
            return f"{self.directory} has no stored start yet"
        except OSError as error:
            return f"{self.directory} cannot be read ({error.strerror})"
        others = []
        for path in newest:
            with contextlib.suppress(OSError, ContractError):
                others.append(StoredStart.parse(_text(path), str(path)).facts)
        same_model = [other for other in others if other.get("model") == facts.get("model")]
        if not same_model:
            return f"{self.directory} has no stored start of this model"
        nearest = min(same_model, key=lambda other: len(differences(other, facts).split("), ")))
        return f"{self.directory} has a stored start of this model with another {differences(nearest, facts)}"


def _text(path: Path) -> str:
    """Raises OSError, and `ContractError` for what is no text of a sane size in a regular file.

    One that grows meanwhile is not read to its end, and a pipe, which would be waited for, not at all.
    """
    if not stat.S_ISREG(path.stat().st_mode):
        raise ContractError(f"{path}: is no regular file")
    with path.open("rb") as file:
        content = file.read(LARGEST + 1)
    if len(content) > LARGEST:
        raise ContractError(f"{path}: has more than {LARGEST} bytes, the most that a stored start may have")
    try:
        return content.decode("utf-8")
    except UnicodeDecodeError as error:
        raise ContractError(f"{path}: is torn or no text ({error.reason})") from None


def _sync(directory: Path) -> None:
    """Make the new name last; some file systems cannot be asked to."""
    with contextlib.suppress(OSError):
        handle = os.open(directory, os.O_RDONLY)
        try:
            os.fsync(handle)
        finally:
            os.close(handle)
