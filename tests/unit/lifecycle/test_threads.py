"""Threads of torch follow the pod's CPU quota, read from trees like the kernel's."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
import torch

from stowplan_agent.lifecycle.threads import cpu_quota, limit_threads


def tree(root: Path, files: dict[str, str]) -> Path:
    for name, text in files.items():
        path = root / "sys/fs/cgroup" / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text, encoding="ascii")
    return root


V1 = "cpu/cpu.cfs_quota_us", "cpu/cpu.cfs_period_us"
TREES = [
    ({"cpu.max": "200000 100000\n"}, 2.0),
    ({"cpu.max": "150000 100000\n"}, 1.5),
    ({"cpu.max": "max 100000\n"}, None),
    ({V1[0]: "400000\n", V1[1]: "100000\n"}, 4.0),
    ({V1[0]: "-1\n", V1[1]: "100000\n"}, None),
    ({V1[0]: "100000\n"}, None),
    ({"cpu.max": "\n", V1[0]: "300000\n", V1[1]: "100000\n"}, 3.0),
    ({"cpu.max": "many 100000\n"}, None),
    ({}, None),
]


@pytest.fixture(autouse=True)
def threads() -> Iterator[None]:
    before = torch.get_num_threads()
    yield
    torch.set_num_threads(before)


@pytest.mark.parametrize(("files", "quota"), TREES)
def test_quota_of_cgroup_v2_and_v1(tmp_path: Path, files: dict[str, str], quota: float | None) -> None:
    assert cpu_quota(tree(tmp_path, files)) == quota


@pytest.mark.parametrize(("quota", "count"), [("400000 100000", 4), ("250000 100000", 2), ("10000 100000", 1)])
def test_threads_are_the_whole_cores_of_the_quota_and_at_least_one(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, quota: str, count: int
) -> None:
    monkeypatch.delenv("OMP_NUM_THREADS", raising=False)
    assert limit_threads(tree(tmp_path, {"cpu.max": quota})) == count
    assert torch.get_num_threads() == count


@pytest.mark.parametrize(("stated", "count"), [("3", 3), ("0", 2), ("", 2), ("two", 2)])
def test_what_the_user_states_wins(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, stated: str, count: int) -> None:
    monkeypatch.setenv("OMP_NUM_THREADS", stated)
    assert limit_threads(tree(tmp_path, {"cpu.max": "200000 100000"})) == count


def test_without_a_quota_there_is_at_least_one_thread(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("OMP_NUM_THREADS", raising=False)
    assert limit_threads(tmp_path) >= 1
