"""Bring a repository of the hub into the cache of huggingface_hub, and check what came.

The library downloads: several files at once, resuming where a connection broke, and keeping whole files for the next
start. What it leaves to others is done here: whether the disk has room is asked before the first byte, what a killed
process left is gone on with (`interrupted`), every file is compared with the hash that the hub states (the library
compares sizes), what went wrong is one sentence with a way out, and neither a token nor the signature of an address is
in it.
"""

from __future__ import annotations

import errno
import importlib
import logging
import os
import re
import shutil
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, Final

from stowplan_agent.inventory.blob_hashes import BlobCheck
from stowplan_agent.inventory.errors import InventoryError
from stowplan_agent.inventory.interrupted import Interrupted
from stowplan_api.quantity import for_people

PATTERNS: Final = ("*.json", "*/*.safetensors", "*.txt", "*.model", "*.jinja")
"""Configs, weights of components and tokenizers. No code, no second copy of the weights: neither in another format nor
in one file at the root of the repository, which no pipeline's folder needs."""
WAITS: Final = (2, 4, 8, 16, 30, 60, 60)
"""Seconds between attempts; the library has tried several times in each."""
BUSY: Final = (408, 429, 500, 502, 503, 504)
"""Statuses that say nothing about the request."""
ABANDONED_SECONDS: Final = 3600
"""A part of a file that nobody has written to for so long was left by a process that was killed."""
SECRETS: Final = ((re.compile(r"hf_\w+"), "hf_***"), (re.compile(r"(https?://[^\s?'\"]+)\?[^\s'\"]+"), r"\1"))

_log = logging.getLogger(__name__)


def hub_download(repository: str, revision: str, *, sleep: Callable[[float], None] = time.sleep) -> str:
    """Download a repository of the hub, with progress on standard error; returns its folder in the cache.

    What passes by itself, such as a network that is away for minutes, is waited for with ``sleep`` (seconds), for a pod
    that gave up would stay down. Raises `InventoryError`, one sentence, for what cannot be had, does not fit the disk,
    or has another hash than the hub states; such a file is removed, so that the next start downloads it again.
    """
    try:
        client: Any = importlib.import_module("huggingface_hub")
        cache = Path(importlib.import_module("huggingface_hub.constants").HF_HUB_CACHE)
    except ImportError:
        raise InventoryError(
            f"hf://{repository} needs the package huggingface_hub; install stowplan[agent], or use file:// or pvc://"
        ) from None
    waits = iter(WAITS)
    while True:
        try:
            return _download(client, repository, revision, cache, sleep)
        except InventoryError:
            raise
        except Exception as error:  # the client raises its own, its HTTP library's and the system's errors
            sentence = _sentence(error, repository, revision, cache, client)
            wait = next(waits, None) if _passes(error) else None
            if wait is None:
                raise InventoryError(sentence) from None
        _log.warning("%s; trying again in %d s", sentence.partition(";")[0], wait)
        sleep(wait)


def _download(client: Any, repository: str, revision: str, cache: Path, sleep: Callable[[float], None]) -> str:
    options: dict[str, Any] = {"revision": revision, "allow_patterns": list(PATTERNS)}
    progress = None if sys.stderr.isatty() else _logged_progress(repository)
    kept = cache / f"models--{repository.replace('/', '--')}"
    files = _planned(client, repository, options)
    interrupted = Interrupted(client, repository, kept, sleep)
    parts = interrupted.parts(files)
    _check_room(repository, files, cache, kept_bytes=sum(part.path.stat().st_size for part in parts))
    interrupted.finish(parts, progress)
    _sweep(kept / "blobs")
    folder = Path(client.snapshot_download(repository, **options, **({"tqdm_class": progress} if progress else {})))
    BlobCheck(f"hf://{repository}", folder).run()
    return str(folder)


def _passes(error: Exception) -> bool:
    """Whether the same may work in a minute: the network or the hub was away, nobody said no."""
    errors = _errors()
    for one in _chain(error):
        if isinstance(one, errors.OfflineModeIsEnabled):
            return False
        if isinstance(one, errors.HfHubHTTPError):
            return one.response.status_code in BUSY
        # httpx, in any of its versions, has one class above all that concerns the way and not the answer
        if isinstance(one, (ConnectionError, TimeoutError)) or "TransportError" in (
            k.__name__ for k in type(one).__mro__
        ):
            return True
    return False


def _planned(client: Any, repository: str, options: dict[str, Any]) -> list[Any]:
    """The files of the download, with their sizes, and whether each will be downloaded."""
    try:
        return list(client.snapshot_download(repository, dry_run=True, **options))
    except _errors().DryRunError:
        return []  # not to be reached: what is in the cache may do, and else the download says why


def _check_room(repository: str, files: list[Any], cache: Path, *, kept_bytes: int) -> None:
    """Refuse what the disk has no room for, before a byte of it is loaded; ``kept_bytes`` of it are there already."""
    needed = sum(file.file_size for file in files if file.will_download) - kept_bytes
    free = shutil.disk_usage(next(path for path in (cache, *cache.parents) if path.is_dir())).free
    if needed > free:
        raise InventoryError(
            f"hf://{repository} needs {for_people(needed)} more on the disk of {cache}, which has {for_people(free)} "
            f"free; make room of {for_people(needed - free)}, or set HF_HOME to a larger disk"
        )
    if needed > 0:
        _log.info("hf://%s: downloading %s in %d files", repository, for_people(needed), len(files))


def _sentence(error: Exception, repository: str, revision: str, cache: Path, client: Any) -> str:
    """What went wrong and the way out, without secrets."""
    source, errors = f"hf://{repository}", _errors()
    chain = tuple(_chain(error))
    system = next((one.errno for one in chain if isinstance(one, OSError) and one.errno is not None), None)
    status = next((one.response.status_code for one in chain if isinstance(one, errors.HfHubHTTPError)), None)
    token = client.get_token()
    account = "an account that may read it, with its token in HF_TOKEN"
    if any(isinstance(one, errors.GatedRepoError) for one in chain):
        return f"{source} is gated: accept its terms on the hub with {account}"
    if any(isinstance(one, errors.RevisionNotFoundError) for one in chain):
        return f"{source} has no revision {revision!r}; give a branch, a tag or a commit of it"
    if status in (401, 403) and token:
        return (
            f"{source} cannot be read with the token in HF_TOKEN (HTTP {status}); correct the name, or give {account}"
        )
    if status in (401, 403, 404):
        return f"{source} does not exist, or is private (HTTP {status}); correct the name, or give {account}"
    if system in (errno.ENOSPC, errno.EDQUOT):
        return (
            f"{source} does not fit on the disk of {cache}, which is full; make room, or set HF_HOME to a larger disk"
        )
    if system in (errno.EROFS, errno.EACCES, errno.EPERM):
        return f"{source} cannot be written to {cache} ({os.strerror(system)}); set HF_HOME to a folder that can be"
    if any(isinstance(one, errors.OfflineModeIsEnabled) for one in chain):
        return f"{source} is not in {cache} as a whole, and HF_HUB_OFFLINE is set; unset it, or use file:// or pvc://"
    reason = " ".join(str(error).split()) or type(error).__name__
    if token:
        reason = reason.replace(token, "***")
    for pattern, shown in SECRETS:
        reason = pattern.sub(shown, reason)
    return (
        f"{source} at revision {revision} cannot be downloaded ({reason[:200]}); what has come is kept: start again, "
        "or use file:// or pvc://"
    )


def _errors() -> Any:
    return importlib.import_module("huggingface_hub.errors")


def _chain(error: BaseException | None) -> Iterator[BaseException]:
    seen: set[int] = set()
    while error is not None and id(error) not in seen:
        seen.add(id(error))
        yield error
        error = error.__cause__ or error.__context__


def _sweep(blobs: Path) -> None:
    """Remove other parts of files that killed processes have left: nobody comes back to them."""
    for part in blobs.glob("*.incomplete"):
        try:
            if time.time() - part.stat().st_mtime > ABANDONED_SECONDS:
                part.unlink()
        except OSError:
            continue  # another process was faster, or the cache is read-only


def _logged_progress(repository: str) -> type[Any]:
    """A progress bar for logs: a line every ten seconds, where a terminal would have its bar redrawn."""
    tqdm = importlib.import_module("tqdm").tqdm

    class LoggedProgress(tqdm):  # type: ignore[valid-type, misc]
        """Bytes received so far."""

        def __init__(self, *args: Any, **options: Any) -> None:
            super().__init__(*args, **{**options, "mininterval": 10.0, "miniters": 1, "delay": 0, "leave": False})

        def display(self, msg: str | None = None, pos: int | None = None) -> None:
            """Called by tqdm where a bar is to be drawn."""
            if self.unit == "B" and self.n and str(self.desc).startswith("Download"):
                _log.info(
                    "hf://%s: %s of %s", repository, for_people(int(self.n)), for_people(int(self.total or self.n))
                )

    return LoggedProgress
