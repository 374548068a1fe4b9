"""Downloads from a hub on this machine, by the real client in a process of its own: whole, right, or one sentence."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from stowplan_agent.inventory import read_checkpoint
from unit.inventory.fake_hub import FakeHub, of_folder, serving

TOKEN = "hf_averysecrettoken"
SHARD = "transformer/diffusion_pytorch_model-00001-of-00002.safetensors"
PROGRAM = """
import logging, sys
from stowplan_agent.inventory import InventoryError, resolve_source
from stowplan_agent.inventory.hub import hub_download
def download(repository, revision):
    return hub_download(repository, revision, sleep=lambda seconds: None)
logging.basicConfig(level=logging.DEBUG, stream=sys.stderr)
try:
    print(resolve_source(sys.argv[1], revision=sys.argv[2], download=download))
except InventoryError as error:
    print(error)
    sys.exit(2)
"""


@pytest.fixture
def hub(checkpoint_folder: Path) -> Iterator[FakeHub]:
    files = of_folder(checkpoint_folder) | {"wan.safetensors": b"all in one", "transformer/model.bin": b"a pickle"}
    with serving(FakeHub(files)) as started:
        yield started


def environment_of(hub: FakeHub, home: Path, **environment: str) -> dict[str, str]:
    """What a pod has: HF_ENDPOINT says where the hub is, HF_HOME where the cache is."""
    own = {"HF_ENDPOINT": hub.endpoint, "HF_HOME": str(home), "HF_HUB_OFFLINE": "0", "HF_HUB_DISABLE_XET": "1"}
    known = {name: value for name, value in os.environ.items() if not name.startswith("HF_")}
    return known | own | environment


def fetch(
    hub: FakeHub, home: Path, *, source: str = "hf://org/wan", revision: str = "main", **environment: str
) -> subprocess.CompletedProcess[str]:
    """What a pod does."""
    done = subprocess.run(
        [sys.executable, "-c", PROGRAM, source, revision],
        env=environment_of(hub, home, **environment),
        capture_output=True,
        text=True,
        check=False,
        timeout=120,
    )
    for text in (done.stdout, done.stderr):
        assert "Traceback" not in text, text
        assert TOKEN not in text, "the token is in what was printed"
    return done


def refused(done: subprocess.CompletedProcess[str]) -> str:
    assert done.returncode == 2, done.stderr
    assert done.stdout.count("\n") == 1
    assert "verysecretsignature" not in done.stdout
    return done.stdout.strip()


def test_a_download_is_the_checkpoint_and_nothing_else(hub: FakeHub, tmp_path: Path) -> None:
    done = fetch(hub, tmp_path, HF_TOKEN=TOKEN)
    assert done.returncode == 0, done.stdout
    folder = Path(done.stdout.strip())
    left_out = ("wan.safetensors", "transformer/model.bin")
    assert of_folder(folder) == {path: content for path, content in hub.files.items() if path not in left_out}
    assert read_checkpoint(folder).pipeline == "WanPipeline"
    assert "hf://org/wan: downloading" in done.stderr


def test_progress_is_logged_where_there_is_no_terminal(hub: FakeHub, tmp_path: Path) -> None:
    lines = [line for line in fetch(hub, tmp_path).stderr.splitlines() if "INFO:stowplan_agent.inventory.hub" in line]
    assert any(" of " in line and "iB" in line for line in lines), lines


def test_a_second_start_downloads_nothing(hub: FakeHub, tmp_path: Path) -> None:
    first = fetch(hub, tmp_path)
    hub.requests.clear()
    assert fetch(hub, tmp_path).stdout == first.stdout
    assert all(hub.ranges(file) == [] for file in hub.files)


def test_a_connection_that_breaks_is_resumed_where_it_broke(hub: FakeHub, tmp_path: Path) -> None:
    """The client writes 10 MiB at a time, so it goes on from a multiple of that."""
    hub.files[SHARD] = bytes(range(256)) * (24 << 12)
    hub.break_after[SHARD] = 12 << 20
    done = fetch(hub, tmp_path)
    assert done.returncode == 0, done.stdout
    assert [asked for asked in hub.ranges(SHARD) if asked] == [f"bytes={10 << 20}-"]
    assert of_folder(Path(done.stdout.strip()))[SHARD] == hub.files[SHARD]


def test_a_hub_that_is_away_for_a_while_is_waited_for(hub: FakeHub, tmp_path: Path) -> None:
    hub.busy = 12
    done = fetch(hub, tmp_path)
    assert done.returncode == 0, done.stdout
    assert "trying again in 2 s" in done.stderr and hub.busy == 0


def test_who_said_no_is_not_asked_again(hub: FakeHub, tmp_path: Path) -> None:
    hub.gated = True
    assert "trying again" not in fetch(hub, tmp_path).stderr


def test_a_file_with_another_hash_is_named_and_removed_and_the_next_start_heals(hub: FakeHub, tmp_path: Path) -> None:
    hub.served[SHARD] = hub.files[SHARD][:-1] + b"\x01"  # as long as it should be
    sentence = refused(fetch(hub, tmp_path))
    assert sentence == (
        f"hf://org/wan: {SHARD} does not have the hash that the hub states, and was removed from the cache; "
        "start again to download it once more"
    )
    hub.served.clear()
    hub.requests.clear()
    done = fetch(hub, tmp_path)
    assert done.returncode == 0, done.stdout
    assert of_folder(Path(done.stdout.strip()))[SHARD] == hub.files[SHARD]
    assert hub.ranges("vae/diffusion_pytorch_model.safetensors") == [], "what was right is not downloaded again"


def test_a_small_file_with_another_hash_is_found_too(hub: FakeHub, tmp_path: Path) -> None:
    hub.served["vae/config.json"] = hub.files["vae/config.json"].replace(b"16", b"61")
    assert "vae/config.json does not have the hash" in refused(fetch(hub, tmp_path))


def test_a_blob_that_rots_in_the_cache_is_found(hub: FakeHub, tmp_path: Path) -> None:
    folder = Path(fetch(hub, tmp_path).stdout.strip())
    blob = (folder / SHARD).resolve()
    blob.write_bytes(blob.read_bytes()[:-1] + b"\x01")
    assert f"{SHARD} does not have the hash" in refused(fetch(hub, tmp_path))


def test_what_the_disk_has_no_room_for_is_refused_before_a_byte_of_it(hub: FakeHub, tmp_path: Path) -> None:
    hub.stated_sizes[SHARD] = 1 << 60
    sentence = refused(fetch(hub, tmp_path))
    assert "hf://org/wan needs 1 EiB more on the disk of " in sentence or "needs 1073741824 GiB" in sentence, sentence
    assert "set HF_HOME to a larger disk" in sentence
    assert hub.ranges(SHARD) == []


@pytest.mark.parametrize(
    ("trouble", "asked", "environment", "says"),
    [
        ({}, "hf://org/gone", {}, "does not exist, or is private (HTTP 404); correct the name, or give an account"),
        ({"needs_token": "other"}, "hf://org/wan", {}, "does not exist, or is private (HTTP 401); correct the name"),
        (
            {"needs_token": "other"},
            "hf://org/wan",
            {"HF_TOKEN": TOKEN},
            "cannot be read with the token in HF_TOKEN (HTTP 401)",
        ),
        ({"gated": True}, "hf://org/wan", {"HF_TOKEN": TOKEN}, "is gated: accept its terms on the hub with an account"),
        ({}, "hf://org/wan", {"HF_HUB_OFFLINE": "1"}, "HF_HUB_OFFLINE is set; unset it"),
        ({}, "hf://org/wan", {"HF_ENDPOINT": "http://127.0.0.1:9"}, "cannot be downloaded ("),
    ],
)
def test_refusals_say_the_way_out(
    hub: FakeHub, tmp_path: Path, trouble: dict[str, object], asked: str, environment: dict[str, str], says: str
) -> None:
    for name, value in trouble.items():
        setattr(hub, name, value)
    sentence = refused(fetch(hub, tmp_path, source=asked, **environment))
    assert sentence.startswith(f"{asked} ") and says in sentence, sentence


def test_a_revision_that_is_not_there_is_named(hub: FakeHub, tmp_path: Path) -> None:
    sentence = refused(fetch(hub, tmp_path, revision="gone"))
    assert sentence == "hf://org/wan has no revision 'gone'; give a branch, a tag or a commit of it"


def test_what_is_in_the_cache_is_used_while_the_hub_is_away(hub: FakeHub, tmp_path: Path) -> None:
    first = fetch(hub, tmp_path)
    assert fetch(hub, tmp_path, HF_ENDPOINT="http://127.0.0.1:9").stdout == first.stdout


def test_parts_that_a_killed_process_left_are_removed(hub: FakeHub, tmp_path: Path) -> None:
    blobs = tmp_path / "hub" / "models--org--wan" / "blobs"
    blobs.mkdir(parents=True)
    old, new = blobs / "a.1.incomplete", blobs / "b.2.incomplete"
    for part in (old, new):
        part.write_bytes(b"part")
    os.utime(old, (1, 1))
    assert fetch(hub, tmp_path).returncode == 0
    assert (old.exists(), new.exists()) == (False, True)
