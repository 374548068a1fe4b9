"""Which tensors are a file: what the kernel lists under a file's name, and nothing that merely looks like one."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch

from stowplan_agent.pipeline.mapped import MappedFiles, Span


@pytest.mark.parametrize(
    ("name", "inode", "expected"),
    [
        ("/models/a b.safetensors", 17, True),
        ("/models/gone.safetensors (deleted)", 17, True),
        ("", 0, False),
        ("[heap]", 0, False),
        ("/dev/zero (deleted)", 17, False),
        ("/dev/shm/torch_1", 17, False),
        ("/memfd:pinned (deleted)", 17, False),
        ("/SYSV00000000 (deleted)", 17, False),
    ],
)
def test_a_mapping_is_a_file_by_what_the_kernel_calls_it(tmp_path: Path, name: str, inode: int, expected: bool) -> None:
    tensor = torch.zeros(64)
    start, end = Span.of(tensor)
    maps = tmp_path / "maps"
    maps.write_text(
        f"1000-2000 r--p 00000000 fe:00 9 /lib/x.so\n{start:x}-{end:x} rw-p 00000000 fe:00 {inode} {name}\n"
    )
    files = MappedFiles(maps)
    assert not files.may_hold(tensor), "it was not looked for yet"
    assert files.hold(tensor) is expected
    assert files.may_hold(tensor) is expected
    assert files.may_hold(tensor[3:]) is expected


@pytest.mark.parametrize(("before", "after"), [(0, -1), (1, 0)])
def test_a_mapping_must_cover_the_whole_storage(tmp_path: Path, before: int, after: int) -> None:
    tensor = torch.zeros(64)
    start, end = Span.of(tensor)
    maps = tmp_path / "maps"
    maps.write_text(f"{start + before:x}-{end + after:x} rw-p 00000000 fe:00 17 /models/a.safetensors\n")
    assert not MappedFiles(maps).hold(tensor[8:16])


def test_without_the_kernel_s_list_nothing_is_a_file(tmp_path: Path) -> None:
    assert not MappedFiles(tmp_path / "absent").hold(torch.zeros(64))


def test_no_memory_is_no_part_of_a_file(tmp_path: Path) -> None:
    maps = tmp_path / "maps"
    maps.write_text("0-ffffffffffff rw-p 00000000 fe:00 17 /models/a.safetensors\n")
    files = MappedFiles(maps)
    assert files.hold(torch.zeros(4))
    assert not files.hold(torch.zeros(4, device="meta"))
    assert not files.hold(torch.zeros(0))
