"""From where a deployment says its model is, to a folder on this machine.

``file:///path`` and ``pvc://CLAIM/path`` are used in place and nothing is ever written there; ``hf://ORG/NAME`` is
downloaded once (`hub`). Only that last case needs a package, and it is imported only then.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from pathlib import Path, PurePosixPath
from typing import Final
from urllib.parse import unquote, urlsplit

from stowplan_agent.inventory.errors import InventoryError
from stowplan_agent.inventory.hub import hub_download

SCHEMES: Final = "file:///PATH, pvc://CLAIM/PATH or hf://ORG/NAME"
REPOSITORY: Final = re.compile(r"[A-Za-z0-9][\w.-]*/[A-Za-z0-9][\w.-]*")
Download = Callable[[str, str], str]
"""Repository and revision to the folder that holds it."""


def resolve_source(
    source: str, *, pvc_root: Path | None = None, revision: str = "main", download: Download | None = None
) -> Path:
    """The folder of a model ``source``, downloaded first if it is on the hub.

    ``pvc_root`` is where claims are mounted, each under its own name; ``revision`` and ``download`` are for ``hf://``.
    Raises `InventoryError` for an unknown scheme, a path that does not exist, and a download that fails.
    """
    try:
        url = urlsplit(source)
    except ValueError as error:
        raise InventoryError(f"source {source!r} is no address ({error}); write {SCHEMES}") from None
    if url.scheme == "hf":
        return Path((download or hub_download)(_repository(source), revision))
    if url.scheme == "file":
        if url.netloc or not url.path.startswith("/"):
            raise InventoryError(f"source {source!r} names a host; write three slashes, as in file:///models/wan")
        path = Path(unquote(url.path))
    elif url.scheme == "pvc":
        path = _in_claim(source, pvc_root)
    else:
        raise InventoryError(f"source {source!r} has an unknown scheme; write {SCHEMES}")
    try:
        exists = path.exists()
    except OSError as error:
        raise InventoryError(f"source {source!r} cannot be read: {path}: {error.strerror}; correct the path") from None
    if not exists:
        raise InventoryError(f"source {source!r} does not exist: there is no {path}; correct the path")
    return path


def _repository(source: str) -> str:
    repository = source.removeprefix("hf://").rstrip("/")
    if not REPOSITORY.fullmatch(repository):
        raise InventoryError(f"source {source!r} names no repository; write hf://ORG/NAME")
    return repository


def _in_claim(source: str, pvc_root: Path | None) -> Path:
    claim, _, path = unquote(source.removeprefix("pvc://")).partition("/")
    parts = PurePosixPath(path).parts
    if not claim or claim in (".", "..") or ".." in parts:
        raise InventoryError(f"source {source!r} names no path inside a claim; write pvc://CLAIM/PATH")
    if pvc_root is None:
        raise InventoryError(f"source {source!r} can only be used in a pod that mounts the claim; use file:// here")
    return pvc_root / claim / path.lstrip("/")
