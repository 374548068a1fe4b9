"""Each kind of source leads to a folder, or to one sentence."""

from __future__ import annotations

import sys
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

from stowplan_agent.inventory.errors import InventoryError
from stowplan_agent.inventory.sources import hub_download, resolve_source


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


def test_the_hub_client_downloads_only_what_is_loaded(monkeypatch: pytest.MonkeyPatch) -> None:
    calls: list[tuple[Any, Any]] = []
    client = ModuleType("huggingface_hub")

    def snapshot_download(*args: Any, **options: Any) -> str:
        calls.append((args, options))
        if options["revision"] == "gone":
            raise RuntimeError("404\nno such revision")
        return "folder"

    client.snapshot_download = snapshot_download  # type: ignore[attr-defined]
    monkeypatch.setitem(sys.modules, "huggingface_hub", client)
    assert hub_download("org/name", "main") == "folder"
    assert calls[0][0] == ("org/name",)
    assert "*.safetensors" in calls[0][1]["allow_patterns"] and "*.bin" not in calls[0][1]["allow_patterns"]
    with pytest.raises(InventoryError, match=r"org/name at revision gone cannot be downloaded \(404 no such rev"):
        hub_download("org/name", "gone")
