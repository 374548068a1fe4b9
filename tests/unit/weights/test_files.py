"""Bytes are read from a file only where the file is sure to have them."""

from __future__ import annotations

import mmap
from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file, save_file

from stowplan_agent.weights.layout import Place, blocks
from stowplan_agent.weights.loading.files import MappedFiles
from stowplan_agent.weights.loading.source import Origin, UnitSource
from stowplan_agent.weights.loading.written_pages import own_pages


def written(folder: Path) -> tuple[dict[str, torch.Tensor], Path]:
    path = folder / "weights.safetensors"
    save_file({f"t{index}": torch.rand(3000 + index) for index in range(5)}, path)
    return load_file(path), path


def flat(tensor: torch.Tensor) -> torch.Tensor:
    return tensor.view(torch.uint8)


@pytest.fixture(params=["page table", "list of mappings"])
def kernel(request: pytest.FixtureRequest, tmp_path: Path) -> dict[str, Path]:
    """How a kernel says what was written to: as this one does, and as one that does not scan its page table."""
    return {} if request.param == "page table" else {"pagemap": tmp_path / "none"}


def test_this_kernel_scans_its_page_table_or_says_that_it_does_not(tmp_path: Path) -> None:
    tensors, _ = written(tmp_path)
    start = tensors["t0"].data_ptr() // mmap.PAGESIZE * mmap.PAGESIZE
    try:
        assert not own_pages(start, start + mmap.PAGESIZE)
    except OSError:
        return  # before Linux 6.7, and in some sandboxes
    tensors["t0"][0] = 1.0
    assert own_pages(start, start + mmap.PAGESIZE)
    assert not own_pages(start + mmap.PAGESIZE, start + 2 * mmap.PAGESIZE)


def test_a_mapped_tensor_is_found_and_read_from_any_byte(tmp_path: Path, kernel: dict[str, Path]) -> None:
    tensors, path = written(tmp_path)
    files = MappedFiles(**kernel)
    for tensor in tensors.values():
        found = files.find(flat(tensor))
        assert found is not None and found.file.name == str(path)
        target = torch.zeros(tensor.nbytes - 8, dtype=torch.uint8)
        found.read(8, target)
        assert torch.equal(target, flat(tensor)[8:])


def test_memory_is_no_file(tmp_path: Path) -> None:
    tensors, _ = written(tmp_path)
    assert MappedFiles().find(flat(torch.rand(5))) is None
    assert MappedFiles(maps=tmp_path / "none", smaps=tmp_path / "none").find(flat(tensors["t0"])) is None
    files = MappedFiles()
    del tensors  # mappings of later are not those of now, but nobody holds a tensor in them
    assert files.find(flat(torch.rand(5))) is None


def test_a_mapping_that_was_written_to_is_copied_from_memory(tmp_path: Path, kernel: dict[str, Path]) -> None:
    tensors, _ = written(tmp_path)
    tensors["t1"][7] = -1.0
    files = MappedFiles(**kernel)
    assert all(files.find(flat(tensor)) is None for tensor in tensors.values())
    place = Place(torch.nn.Module(), "t1", tensors["t1"], is_buffer=False)
    source = UnitSource(blocks([place]), Origin(files=files))
    target = torch.zeros(source.nbytes, dtype=torch.uint8)
    source.read(0, target)
    assert torch.equal(target[: tensors["t1"].nbytes], flat(tensors["t1"]))


@pytest.mark.parametrize("how", ["replaced", "removed"])
def test_a_file_that_is_another_by_now_is_copied_from_memory(how: str, tmp_path: Path, kernel: dict[str, Path]) -> None:
    tensors, path = written(tmp_path)
    path.unlink()
    if how == "replaced":
        written(tmp_path)
    assert MappedFiles(**kernel).find(flat(tensors["t0"])) is None


def test_one_name_that_was_two_files(tmp_path: Path) -> None:
    """The tensors of the file that has the name are read from it, those of the one before from memory."""
    before, path = written(tmp_path)
    path.unlink()
    after, _ = written(tmp_path)
    for order in ((before, after), (after, before)):
        files = MappedFiles()
        found = {id(tensors): files.find(flat(tensors["t0"])) for tensors in order}
        assert found[id(before)] is None and found[id(after)] is not None


def test_a_file_that_ends_early_is_named(tmp_path: Path) -> None:
    tensors, path = written(tmp_path)
    found = MappedFiles().find(flat(tensors["t4"]))
    assert found is not None
    nbytes = tensors["t4"].nbytes
    del tensors
    with path.open("r+b") as file:
        file.truncate(200)
    with pytest.raises(OSError, match=r"weights\.safetensors: the file ends before byte"):
        found.read(0, torch.zeros(nbytes, dtype=torch.uint8))


def test_a_conversion_reads_the_file_and_not_its_mapping(tmp_path: Path) -> None:
    """Reading a mapping past the end of a file that was cut short would end the process without a word."""
    tensors, path = written(tmp_path)
    late = torch.empty(tensors["t4"].shape, dtype=torch.bfloat16)
    origin = Origin(lambda storage: tensors["t4"].flatten(), MappedFiles())
    source = UnitSource(blocks([Place(torch.nn.Module(), "t4", late, is_buffer=False)]), origin)
    target = torch.zeros(source.nbytes, dtype=torch.uint8)
    for start in range(0, source.nbytes, 512):
        source.read(start, target[start : start + 512])
    assert torch.equal(target[: late.nbytes].view(torch.bfloat16), tensors["t4"].bfloat16())
    with path.open("r+b") as file:
        file.truncate(200)
    with pytest.raises(OSError, match=r"weights\.safetensors: the file ends before byte"):
        source.read(0, target)


def test_a_kernel_that_does_not_count_written_pages_is_not_trusted(tmp_path: Path) -> None:
    tensors, _ = written(tmp_path)
    shortened = tmp_path / "smaps"
    lines = Path("/proc/self/smaps").read_text().splitlines()
    shortened.write_text("\n".join(line for line in lines if not line.startswith("Anonymous:")))
    assert MappedFiles(pagemap=tmp_path / "none", smaps=shortened).find(flat(tensors["t0"])) is None


def test_descriptors_are_closed_with_the_last_who_needs_them(tmp_path: Path) -> None:
    def opened() -> int:
        return sum(path.is_symlink() for path in Path("/proc/self/fd").iterdir())

    tensors, _ = written(tmp_path)
    before = opened()
    files = MappedFiles()
    place = Place(torch.nn.Module(), "t1", tensors["t1"], is_buffer=False)
    source = UnitSource(blocks([place]), Origin(files=files))
    del files
    for _ in range(2):
        source.read(0, torch.zeros(source.nbytes, dtype=torch.uint8))
        assert opened() == before + 1
    del source
    assert opened() == before
