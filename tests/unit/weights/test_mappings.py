"""What the kernel's list says of files: each line as the manual page has it."""

from __future__ import annotations

from pathlib import Path

import pytest

from stowplan_agent.weights.loading.mappings import file_mappings, unwritten_mappings

SMAPS = """\
1000-2000 r--p 00003000 fe:00 9                          /lib/a library.so
Size:                  4 kB
Anonymous:             0 kB
AnonHugePages:         0 kB
Swap:                  0 kB
SwapPss:               0 kB
VmFlags: rd mr mw me
2000-4000 rw-p 00000000 00:1b 10                         /models/written.safetensors
Size:                  8 kB
Anonymous:             4 kB
LazyFree:              0 kB
Swap:                  0 kB
4000-6000 rw-p 00000000 00:00 0
Size:                  8 kB
Anonymous:             0 kB
6000-7000 rw-p 00000000 00:00 0                          [heap]
Anonymous:             0 kB
7f00-8f00 rw-s 00001000 103:02 77                        /dev/shm/model.safetensors
Size:                  4 kB
Anonymous:             0 kB
Swap:                  0 kB
8f00-9000 rw-p 00000000 00:1b 11                         /models/written-and-swapped-out.safetensors
Size:                  8 kB
Anonymous:             0 kB
Swap:                  4 kB
9000-a000 r--p 00000000 fe:00 12                         /cut/short.so
Size:                  4 kB
"""


def test_files_and_which_of_them_were_written_to(tmp_path: Path) -> None:
    path = tmp_path / "smaps"
    path.write_text(SMAPS)
    names = {mapping.inode: mapping.name for mapping in file_mappings(path)}
    assert names == {
        9: "/lib/a library.so",
        10: "/models/written.safetensors",
        77: "/dev/shm/model.safetensors",
        11: "/models/written-and-swapped-out.safetensors",
        12: "/cut/short.so",
    }
    clean = list(unwritten_mappings(path))
    assert [mapping.inode for mapping in clean] == [9, 77], "written to, or not said to be clean, is not the file's"
    assert (clean[0].start, clean[0].end, clean[0].offset, clean[0].device) == (0x1000, 0x2000, 0x3000, "fe:00")
    assert clean[1].device == "103:02"


@pytest.mark.parametrize(("name", "on_disk"), [("/models/a", True), ("/dev/shm/a", False), ("/memfd:a", False)])
def test_shared_memory_is_not_on_disk(tmp_path: Path, name: str, on_disk: bool) -> None:
    path = tmp_path / "maps"
    path.write_text(f"1000-2000 r--p 00000000 fe:00 9 {name}\n")
    assert [mapping.on_disk for mapping in file_mappings(path)] == [on_disk]
