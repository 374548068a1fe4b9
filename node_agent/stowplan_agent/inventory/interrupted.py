"""Go on with files of the hub whose download was killed: what has come is kept, and the rest is asked for by range.

huggingface_hub resumes within a process, and gives each download a part of its own name (``HASH.RANDOM.incomplete``) to
which no later process comes back: a pod that is killed at 25 of 30 GiB would begin again. Here the largest part of a
file that nobody writes to is finished, compared with the hash in its name, and put in its place in the cache, where the
library finds it. A part with another hash is removed, and the library downloads the file as if it had never been there.

Files that the hub serves by Xet are left to the library: that protocol writes a part in no order, and fetches many
pieces at once, faster than any range.
"""

from __future__ import annotations

import importlib
import logging
import time
from collections.abc import Callable, Iterable
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final
from urllib.parse import urlsplit

from stowplan_agent.inventory.blob_hashes import has_hash
from stowplan_agent.inventory.errors import InventoryError
from stowplan_api.quantity import for_people

WORTH: Final = 4 << 20
"""Bytes below which a part is not worth a question."""
QUIET_SECONDS: Final = 15
"""A part that was written to within this time may be a living process's on a file system whose locks do nothing; one
that hears nothing from the hub for 10 s gives up."""
AT_ONCE: Final = 8
"""Files at once: as many as the library takes."""

_log = logging.getLogger(__name__)


@dataclass(frozen=True)
class Part:
    """What a killed download left of one file, and where the rest is."""

    path: Path
    filename: str
    url: str
    etag: str
    size: int
    """Bytes of the whole file."""

    @property
    def blob(self) -> Path:
        """Where the whole file belongs."""
        return self.path.with_name(self.etag)


@dataclass(frozen=True)
class Interrupted:
    """The parts of one repository, in ``folder`` of the library's cache; ``client`` is the library."""

    client: Any
    repository: str
    folder: Path
    sleep: Callable[[float], None] = time.sleep

    def parts(self, files: Iterable[Any]) -> list[Part]:
        """Those worth finishing among ``files``, which are the library's own account of what it would download."""
        left = self._largest_parts()
        if not left:
            return []
        wanted = [file for file in files if file.will_download and (file.file_size or 0) >= WORTH]
        with ThreadPoolExecutor(AT_ONCE) as pool:
            found = pool.map(lambda file: self._part(file, left), wanted)
            return [part for part in found if part is not None]

    def finish(self, parts: Iterable[Part], progress: type[Any] | None) -> None:
        """Download what is missing of each. Raises what the library raises; what has come is kept even then."""
        with ThreadPoolExecutor(AT_ONCE) as pool:
            list(pool.map(lambda part: self._finish(part, progress), parts))

    def _largest_parts(self) -> dict[str, Path]:
        """By the hash that a part is named by."""
        found: dict[str, Path] = {}
        for path in sorted((self.folder / "blobs").glob("*.*.incomplete"), key=_size):
            if _size(path) >= WORTH:
                found[path.name.partition(".")[0]] = path
        return found

    def _part(self, file: Any, left: dict[str, Path]) -> Part | None:
        url = self.client.hf_hub_url(self.repository, file.filename, revision=file.commit_hash)
        told = self.client.get_hf_file_metadata(url, token=self.client.get_token() or False)
        path = left.get(told.etag or "")
        by_xet = told.xet_file_data is not None and _runtime().is_xet_available()
        if path is None or by_xet or told.size is None or _size(path) > told.size:
            return None
        return Part(path, file.filename, url, told.etag, told.size)

    def _finish(self, part: Part, progress: type[Any] | None) -> None:
        name = f"models--{self.repository.replace('/', '--')}"
        lock = self.folder.parent / ".locks" / name / f"{part.etag}.lock"
        lock.parent.mkdir(parents=True, exist_ok=True)
        timeout = importlib.import_module("filelock").Timeout
        # Else somebody downloads it now, or has just finished.
        with suppress(timeout, FileNotFoundError), self.client.utils.WeakFileLock(lock, timeout=1):
            if part.blob.exists() or not self._is_quiet(part.path):
                return
            have = _size(part.path)
            _log.info(
                "hf://%s: going on with %s at %s of %s",
                self.repository, part.filename, for_people(have), for_people(part.size),
            )  # fmt: skip
            self._fetch_rest(part, have, progress)
            if has_hash(part.path, part.etag):
                part.path.replace(part.blob)
            else:
                _log.warning("hf://%s: what was left of %s is not its beginning", self.repository, part.filename)
                part.path.unlink()

    def _is_quiet(self, path: Path) -> bool:
        """Whether nobody writes to it, for `QUIET_SECONDS`."""
        before = path.stat()
        wait = QUIET_SECONDS - (time.time() - before.st_mtime)
        if wait > 0:
            self.sleep(wait)
        now = path.stat()
        return (now.st_size, now.st_mtime_ns) == (before.st_size, before.st_mtime_ns)

    def _fetch_rest(self, part: Part, have: int, progress: type[Any] | None) -> None:
        token = self.client.get_token() or False
        told = self.client.get_hf_file_metadata(part.url, token=token)  # anew: addresses are signed for minutes
        if told.etag != part.etag:
            raise InventoryError(f"hf://{self.repository}: {part.filename} has changed meanwhile; start again")
        headers = self.client.utils.build_hf_headers(token=token)
        if urlsplit(told.location).netloc != urlsplit(part.url).netloc:
            headers.pop("authorization", None)  # a signed address of another host must not see the token
        with part.path.open("r+b") as file:
            file.seek(have)
            importlib.import_module("huggingface_hub.file_download").http_get(
                told.location,
                file,
                resume_size=have,
                headers=headers,
                expected_size=part.size,
                displayed_filename=part.filename,
                tqdm_class=progress,
            )


def _size(path: Path) -> int:
    try:
        return path.stat().st_size
    except OSError:
        return 0


def _runtime() -> Any:
    return importlib.import_module("huggingface_hub.utils")
