"""Each kind of source leads to a folder, or to one sentence."""

from __future__ import annotations

import errno
import os
import sys
from pathlib import Path

import pytest

from stowplan_agent.inventory import read_checkpoint, take_inventory
from stowplan_agent.inventory.errors import InventoryError
from stowplan_agent.inventory.hub import WAITS, hub_download
from stowplan_agent.inventory.sources import resolve_source


def test_local_folders_are_used_in_place(tmp_path: Path) -> None:
    folder = tmp_path / "a claim" / "models" / "wan"
    folder.mkdir(parents=True)
    assert resolve_source(f"file://{folder}") == folder
    assert resolve_source(f"file://{str(folder).replace(' ', '%20')}") == folder
    assert resolve_source("pvc://a claim/models/wan", pvc_root=tmp_path) == folder
    assert resolve_source("pvc://a claim", pvc_root=tmp_path) == tmp_path / "a claim"


def test_the_hub_gets_repository_and_revision(tmp_path: Path) -> None:
    asked = []

    def download(repository: str, revision: str) -> str:
        asked.append((repository, revision))
        return str(tmp_path)

    assert resolve_source("hf://Wan-AI/Wan2.2-T2V", revision="v1", download=download) == tmp_path
    assert asked == [("Wan-AI/Wan2.2-T2V", "v1")]


@pytest.mark.parametrize(
    ("source", "says"),
    [
        ("file:///no/such/model", "does not exist: there is no /no/such/model"),
        (f"file:///{'a' * 300}", "File name too long; correct the path"),
        ("file://models/wan", "write three slashes"),
        ("pvc://claim/../../etc", "names no path inside a claim"),
        ("pvc:///path", "names no path inside a claim"),
        ("pvc://../path", "names no path inside a claim"),
        ("pvc://claim/%2e%2e/x", "names no path inside a claim"),
        ("pvc://claim/gone", "does not exist"),
        ("hf://just-a-name", "write hf://ORG/NAME"),
        ("hf://a/b/c", "write hf://ORG/NAME"),
        ("hf://../x", "write hf://ORG/NAME"),
        ("s3://bucket/model", "unknown scheme; write file:///PATH, pvc://CLAIM/PATH or hf://ORG/NAME"),
        ("models/wan", "unknown scheme"),
        ("file://[bad", "is no address"),
        ("", "unknown scheme"),
    ],
)
def test_other_sources_are_refused(source: str, says: str, tmp_path: Path) -> None:
    with pytest.raises(InventoryError) as refusal:
        resolve_source(source, pvc_root=tmp_path)
    assert says in str(refusal.value)


def test_a_claim_needs_a_pod() -> None:
    with pytest.raises(InventoryError, match="only be used in a pod"):
        resolve_source("pvc://claim/path")


def test_without_the_hub_client_the_sentence_says_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "huggingface_hub", None)
    with pytest.raises(InventoryError, match=r"install stowplan\[agent\]"):
        hub_download("org/name", "main")


@pytest.mark.parametrize(
    ("number", "says"),
    [
        (
            errno.ENOSPC,
            "hf://org/name does not fit on the disk of {cache}, which is full; make room, or set HF_HOME to",
        ),
        (errno.EDQUOT, "which is full"),
        (errno.EROFS, "hf://org/name cannot be written to {cache} (Read-only file system); set HF_HOME to a folder"),
        (errno.EACCES, "(Permission denied); set HF_HOME to a folder that can be"),
    ],
)
def test_trouble_with_the_disk_is_one_sentence(
    number: int, says: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def snapshot_download(repository: str, *, dry_run: bool = False, **options: object) -> list[object]:
        if dry_run:
            return []
        raise RuntimeError("a file failed") from OSError(number, os.strerror(number), "x")

    monkeypatch.setattr("huggingface_hub.snapshot_download", snapshot_download)
    monkeypatch.setattr("huggingface_hub.constants.HF_HUB_CACHE", str(tmp_path))
    with pytest.raises(InventoryError) as refusal:
        hub_download("org/name", "main")
    assert says.format(cache=tmp_path) in str(refusal.value)


def test_secrets_are_not_in_a_reason(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def snapshot_download(repository: str, **options: object) -> str:
        raise ConnectionError("Bearer hf_Secret1 my-token at https://cdn.example/file?X-Signature=abc&x=y 'failed'")

    waited: list[float] = []
    monkeypatch.setenv("HF_TOKEN", "my-token")
    monkeypatch.setattr("huggingface_hub.snapshot_download", snapshot_download)
    with pytest.raises(InventoryError) as refusal:
        hub_download("org/name", "main", sleep=waited.append)
    assert len(waited) == len(WAITS)
    assert "(Bearer hf_*** *** at https://cdn.example/file 'failed')" in str(refusal.value)
    assert refusal.value.__cause__ is None and refusal.value.__suppress_context__


def test_folders_that_cannot_be_written_to_are_used_in_place(checkpoint_folder: Path) -> None:
    """A claim mounted read-only, an image's layer: nothing is put beside the files."""
    before = {path: path.stat().st_mtime_ns for path in checkpoint_folder.rglob("*")}
    for path in (checkpoint_folder, *before):
        path.chmod(0o555 if path.is_dir() else 0o444)
    try:
        found = resolve_source(f"pvc://{checkpoint_folder.name}", pvc_root=checkpoint_folder.parent)
        assert found == checkpoint_folder
        take_inventory(read_checkpoint(found), "bfloat16")
        assert {path: path.stat().st_mtime_ns for path in checkpoint_folder.rglob("*")} == before
    finally:
        for path in (checkpoint_folder, *before):
            path.chmod(0o755 if path.is_dir() else 0o644)
