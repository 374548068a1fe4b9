"""A directory of stored starts: whole or not at all, found by what must agree, and never a reason to fail."""

from __future__ import annotations

import errno
import json
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from planned_records import RECORD
from stowplan_agent.lifecycle.warm_start import StepReference, Store, StoredStart, differences, fingerprint_of
from stowplan_agent.planning import seed_placement
from stowplan_api.model import ContractError
from stowplan_api.residency_placement import PlanStatus

FACTS = {"model": "sha256:1", "device": "H200", "driver": "570.86", "torch": "2.9.0", "stowplan": "0.1.0"}
STEP = StepReference(
    shape="clip", steps=1, digest="ab" * 32, seconds=0.25, peak_bytes=5, reserved_peak_bytes=6, calls=()
)


def stored(facts: dict[str, str] = FACTS, **fields: Any) -> StoredStart:
    return StoredStart(
        fingerprint=fingerprint_of(facts),
        facts=facts,
        proven_at="2026-01-02T03:04:05Z",
        record=RECORD,
        as_run=RECORD,
        placement=seed_placement(RECORD.components, ranks=1),
        plan=PlanStatus(id="p", predicted_milliseconds=1, predicted_peak_bytes=2),
        pinned_bytes=0,
        reference=STEP,
        step=STEP,
        bounded_digest="cd" * 32,
        **fields,
    )


@pytest.fixture
def store(tmp_path: Path) -> Store:
    return Store(tmp_path / "records")


def only_file(store: Store) -> Path:
    (path,) = store.directory.iterdir()
    return path


def test_what_is_kept_is_found_equal(store: Store) -> None:
    assert store.keep(stored()) is None
    assert store.find(FACTS) == stored()
    assert only_file(store).name == f"{fingerprint_of(FACTS)}.json"


def test_keeping_again_replaces(store: Store) -> None:
    store.keep(stored())
    newer = stored().model_copy(update={"proven_at": "2027-01-01T00:00:00Z"})
    assert store.keep(newer) is None
    assert store.find(FACTS) == newer
    assert only_file(store)


def test_each_fingerprint_has_a_file_of_its_own(store: Store) -> None:
    other = FACTS | {"driver": "580.65"}
    store.keep(stored())
    store.keep(stored(other))
    assert len(list(store.directory.iterdir())) == 2
    found = store.find(other)
    assert isinstance(found, StoredStart)
    assert found.facts == other


def test_what_did_not_hold_is_forgotten(store: Store) -> None:
    store.keep(stored())
    store.forget(fingerprint_of(FACTS))
    store.forget(fingerprint_of(FACTS))
    assert isinstance(store.find(FACTS), str)


def test_a_file_that_says_another_fingerprint_is_not_used(store: Store) -> None:
    """What is forgotten by its fingerprint must be what was found by it."""
    store.keep(stored())
    only_file(store).write_text(stored().model_copy(update={"fingerprint": "0" * 32}).text())
    found = store.find(FACTS)
    assert isinstance(found, str)
    assert f"its fingerprint is {'0' * 32}" in found


@pytest.mark.parametrize(
    ("changed", "words"),
    [
        ({"driver": "580.65"}, ("with another driver (570.86 and not 580.65)",)),
        ({"torch": "2.10.0"}, ("torch (2.9.0 and not 2.10.0)",)),
        ({"device": "L4"}, ("device (H200 and not L4)",)),
        ({"stowplan": "0.2.0"}, ("stowplan (0.1.0 and not 0.2.0)",)),
        ({"model": "sha256:2"}, ("no stored start of this model",)),
    ],
)
def test_another_fingerprint_is_not_found_and_what_differs_is_said(
    store: Store, changed: dict[str, str], words: tuple[str, ...]
) -> None:
    store.keep(stored())
    found = store.find(FACTS | changed)
    assert isinstance(found, str)
    for word in words:
        assert word in found


def test_of_several_others_the_closest_is_named(store: Store) -> None:
    store.keep(stored(FACTS | {"driver": "1", "torch": "1"}))
    store.keep(stored(FACTS | {"driver": "2"}))
    found = store.find(FACTS)
    assert isinstance(found, str)
    assert found.endswith("with another driver (2 and not 570.86)")


def test_an_empty_or_missing_directory_is_no_error(store: Store) -> None:
    assert store.find(FACTS) == f"{store.directory} has no stored start yet"
    store.directory.mkdir()
    assert store.find(FACTS) == f"{store.directory} has no stored start of this model"


def cut(text: str) -> str:
    return text[: len(text) // 2]


def newer_format(text: str) -> str:
    return text.replace('"format": 2', '"format": 3')


def edited(text: str) -> str:
    return text.replace('"pinnedBytes": 0', '"pinnedBytes": 1')


def of_another(text: str) -> str:
    return stored(FACTS | {"driver": "1"}).text()


@pytest.mark.parametrize(
    ("change", "words"),
    [
        (cut, "is torn or no JSON"),
        (lambda text: "", "is torn or no JSON"),
        (lambda text: "[]", "is no stored start"),
        (lambda text: "\0" * len(text), "is torn or no JSON"),
        (newer_format, "has format 3, and this version reads 2"),
        (edited, "was changed or damaged"),
        (of_another, "is of another start: driver (1 and not 570.86)"),
    ],
)
def test_a_torn_a_foreign_and_a_changed_file_are_told_apart(
    store: Store, change: Callable[[str], str], words: str
) -> None:
    store.keep(stored())
    path = only_file(store)
    path.write_text(change(path.read_text()))
    found = store.find(FACTS)
    assert isinstance(found, str)
    assert words in found
    assert str(path) in found


def test_bytes_that_are_no_text(store: Store) -> None:
    store.keep(stored())
    only_file(store).write_bytes(b"\xff\xfe\x00")
    assert "is torn or no text" in str(store.find(FACTS))


@given(cut_at=st.integers(0, 4000), put=st.binary(max_size=8))
def test_whatever_happens_to_a_file_it_is_found_equal_or_not_at_all(cut_at: int, put: bytes) -> None:
    text = stored().text().encode()
    cut_at = min(cut_at, len(text))
    damaged = text[:cut_at] + put + text[cut_at + len(put) :]
    try:
        found = StoredStart.parse(damaged.decode(), "file")
    except (ContractError, UnicodeDecodeError):
        return
    assert found == stored()


def test_a_file_too_large_to_be_one_is_not_read(store: Store) -> None:
    store.keep(stored())
    with only_file(store).open("r+b") as file:
        file.truncate(9 << 20)
    assert "has more than 8388608 bytes" in str(store.find(FACTS))


def test_a_pipe_is_not_waited_for(store: Store) -> None:
    store.keep(stored())
    path = only_file(store)
    path.unlink()
    os.mkfifo(path)
    assert f"{path}: is no regular file" in str(store.find(FACTS))


def raising(number: int) -> Callable[..., Any]:
    def fail(*_: Any, **__: Any) -> Any:
        raise OSError(number, os.strerror(number))

    return fail


@pytest.mark.parametrize("step", ["fsync", "write", "rename", "mkdir"])
@pytest.mark.parametrize("number", [errno.ENOSPC, errno.EROFS, errno.EIO])
def test_a_full_or_read_only_disk_is_a_sentence_and_leaves_what_was_there(
    store: Store, step: str, number: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    store.keep(stored())
    with monkeypatch.context() as patch:
        if step == "fsync":
            patch.setattr(os, "fsync", raising(number))
        elif step == "write":
            patch.setattr(Path, "open", raising(number))
        elif step == "rename":
            patch.setattr(Path, "replace", raising(number))
        else:
            patch.setattr(Path, "mkdir", raising(number))
        problem = store.keep(stored().model_copy(update={"proven_at": "2027-01-01T00:00:00Z"}))
    assert problem is not None
    assert f"cannot be written ({os.strerror(number)}); the next start measures anew" in problem
    assert store.find(FACTS) == stored()
    assert only_file(store).suffix == ".json"  # and no draft beside it


def test_a_directory_that_cannot_be_read_is_a_reason(store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    store.keep(stored())
    monkeypatch.setattr(Path, "open", raising(errno.EACCES))
    assert f"cannot be read ({os.strerror(errno.EACCES)})" in str(store.find(FACTS))
    monkeypatch.setattr(Path, "stat", raising(errno.EACCES))
    assert "cannot be read" in str(store.find(FACTS | {"driver": "1"}))


def test_a_file_in_the_directorys_place_is_a_reason(tmp_path: Path) -> None:
    path = tmp_path / "records"
    path.write_text("")
    assert "cannot be read" in str(Store(path).find(FACTS))
    assert "cannot be written" in str(Store(path).keep(stored()))


def test_a_config_maps_mount_is_read(store: Store, tmp_path: Path) -> None:
    """Files are links into a directory whose name begins with two dots, beside which more such names lie."""
    data = tmp_path / "records" / "..2026_01_01"
    data.mkdir(parents=True)
    start = stored()
    (data / f"{start.fingerprint}.json").write_text(start.text())
    (tmp_path / "records" / "..data").symlink_to(data)
    (tmp_path / "records" / f"{start.fingerprint}.json").symlink_to(Path("..data") / f"{start.fingerprint}.json")
    assert store.find(FACTS) == start
    assert "another driver" in str(store.find(FACTS | {"driver": "1"}))


def test_the_fingerprint_is_of_values_and_not_of_their_order() -> None:
    assert fingerprint_of(dict(reversed(FACTS.items()))) == fingerprint_of(FACTS)
    assert len({fingerprint_of(FACTS | {name: "x"}) for name in FACTS} | {fingerprint_of(FACTS)}) == len(FACTS) + 1


def test_what_differs_is_shown_shortened() -> None:
    assert differences({"shapes": "x" * 100}, {"shapes": ""}) == f"shapes ({'x' * 40}... and not nothing)"


def test_the_file_is_json_that_says_what_it_is() -> None:
    data = json.loads(stored().text())
    assert (data["kind"], data["format"], data["fingerprint"]) == ("StoredStart", 2, fingerprint_of(FACTS))
