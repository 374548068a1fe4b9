"""What is kept is bounded in number and bytes, the oldest goes first, and every file has an owner at every moment."""

from __future__ import annotations

import errno
import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from stowplan_agent.serving.contents import Content
from stowplan_agent.serving.jobs import Job, JobError
from stowplan_agent.serving.requests import Cancelled, Failed, GenerationRequest
from stowplan_agent.serving.results_folder import PREFIX, ResultsFolder
from stowplan_agent.serving.shelf import Shelf


def job(kind: str = "video") -> Job:
    return Job(GenerationRequest(kind, "a", None, 32, 32, 5, 4, 1, None), 0, lambda _: None, kept=True)  # type: ignore[arg-type]


def made(shelf: Shelf, size: int, parts: int = 1) -> Job:
    """A finished job on the shelf whose parts have ``size`` bytes each."""
    one = job()
    shelf.put(one)
    one.complete(1, Content(shelf.store(one, [b"x" * size] * parts, ".mp4")))
    return one


def files(parent: Path) -> int:
    return sum(path.suffix == ".mp4" for path in parent.rglob("*"))


@pytest.fixture
def shelf(tmp_path: Path) -> Shelf:
    return Shelf(most_jobs=3, most_bytes=100, folder=ResultsFolder(tmp_path))


def test_the_oldest_finished_jobs_go_first_by_count(shelf: Shelf, tmp_path: Path) -> None:
    waits = job()
    shelf.put(waits)
    jobs = [made(shelf, 10) for _ in range(5)]
    assert [one for one in jobs if shelf.get(one.id)] == jobs[2:]
    assert shelf.get(waits.id) is waits
    assert (files(tmp_path), shelf.held_bytes) == (3, 30)


def test_the_oldest_make_room_by_bytes_before_a_byte_is_written(shelf: Shelf, tmp_path: Path) -> None:
    first, second, third = made(shelf, 20, parts=2), made(shelf, 40), made(shelf, 50)
    assert shelf.get(first.id) is None
    assert shelf.get(second.id) is second
    assert shelf.get(third.id) is third
    assert (files(tmp_path), shelf.held_bytes) == (2, 90)
    with pytest.raises(FileNotFoundError):
        first.content.read(0)  # type: ignore[union-attr]


def test_failed_jobs_make_no_room_as_they_take_none(shelf: Shelf) -> None:
    failed = job()
    shelf.put(failed)
    failed.fail(1, JobError("failed", "no"))
    made(shelf, 60)
    made(shelf, 60)
    assert shelf.get(failed.id) is failed


def test_a_result_above_the_bound_fails_and_costs_no_other(shelf: Shelf) -> None:
    kept, huge = made(shelf, 60), job()
    shelf.put(huge)
    with pytest.raises(Failed, match="has 101 bytes and all results may have 100"):
        shelf.store(huge, [b"x" * 101], ".mp4")
    assert shelf.get(kept.id) is kept


def test_taking_a_job_takes_its_files(shelf: Shelf, tmp_path: Path) -> None:
    one = made(shelf, 10, parts=3)
    assert files(tmp_path) == 3
    assert shelf.take(one.id) is one
    assert (files(tmp_path), shelf.held_bytes, len(shelf), shelf.take(one.id)) == (0, 0, 0, None)


def test_a_job_that_is_taken_while_its_files_are_written_leaves_none(shelf: Shelf, tmp_path: Path) -> None:
    one = job()
    shelf.put(one)

    class Parts(list[bytes]):
        """Its second part comes after somebody has deleted the job."""

        def __iter__(self):  # type: ignore[no-untyped-def]
            yield b"first"
            if shelf.held_bytes:
                shelf.take(one.id)
            yield b"second"

    with pytest.raises(Cancelled):
        shelf.store(one, Parts([b"first", b"second"]), ".mp4")
    assert (files(tmp_path), shelf.held_bytes) == (0, 0)
    with pytest.raises(Cancelled):
        shelf.store(one, [b"late"], ".mp4")


def test_a_disk_without_room_fails_that_job_and_leaves_nothing(
    shelf: Shelf, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    one = job()
    shelf.put(one)
    write = Path.write_bytes

    def full(path: Path, data: bytes) -> int:
        write(path, data[:1])
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    monkeypatch.setattr(Path, "write_bytes", full)
    with pytest.raises(Failed, match="No space left on device; free the server's disk"):
        shelf.store(one, [b"xx", b"yy"], ".mp4")
    assert (files(tmp_path), shelf.held_bytes) == (0, 0)


def test_a_disk_smaller_than_the_bound_is_the_bound(
    shelf: Shelf, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    write = Path.write_bytes

    def small(path: Path, data: bytes) -> int:
        room = 50 - sum(one.stat().st_size for one in tmp_path.rglob("*.mp4"))
        if room < len(data):
            write(path, data[: max(room, 0)])
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        return write(path, data)

    monkeypatch.setattr(Path, "write_bytes", small)
    jobs = [made(shelf, 10, parts=2), made(shelf, 20), made(shelf, 15, parts=2)]
    assert [one for one in jobs if shelf.get(one.id)] == jobs[1:]
    assert (files(tmp_path), shelf.held_bytes) == (3, 50)
    huge = job()
    shelf.put(huge)
    with pytest.raises(Failed, match="No space left on device"):
        shelf.store(huge, [b"x" * 60], ".mp4")
    assert (files(tmp_path), shelf.held_bytes) == (0, 0)


def test_pages_go_on_behind_what_was_deleted(tmp_path: Path) -> None:
    shelf = Shelf(folder=ResultsFolder(tmp_path))
    jobs = [made(shelf, 1) for _ in range(5)]
    shelf.put(job("image"))
    newest, more = shelf.page("video", None, 2, newest_first=True)
    assert (newest, more) == (jobs[:2:-1], True)
    for one in newest:
        shelf.take(one.id)
    rest, more = shelf.page("video", newest[-1].id, 5, newest_first=True)
    assert (rest, more) == (jobs[2::-1], False)
    assert shelf.page("video", jobs[0].id, 5, newest_first=False) == (jobs[1:3], False)


def test_collected_is_what_ended_long_ago_or_was_fetched(shelf: Shelf) -> None:
    one = made(shelf, 1)
    assert shelf.wait_until_collected(since=2, timeout=0)
    assert not shelf.wait_until_collected(since=1, timeout=0)
    shelf.collect(one)
    assert shelf.wait_until_collected(since=1, timeout=0)
    shelf.put(job())
    assert not shelf.wait_until_collected(since=9, timeout=0)


def test_the_folder_is_made_at_the_first_use_and_goes_with_all_that_is_in_it(tmp_path: Path) -> None:
    shelf = Shelf(folder=ResultsFolder(tmp_path))
    assert list(tmp_path.iterdir()) == []
    made(shelf, 10)
    assert files(tmp_path) == 1
    shelf.close()
    assert list(tmp_path.iterdir()) == []


def test_what_a_killed_process_left_is_removed_and_what_a_living_one_holds_is_not(tmp_path: Path) -> None:
    program = (
        "import os, sys; from pathlib import Path\n"
        "from stowplan_agent.serving.results_folder import ResultsFolder\n"
        "folder = ResultsFolder(Path(sys.argv[1])); (folder.path / 'video.mp4').write_bytes(b'x')\n"
        "os.kill(os.getpid(), 9)"
    )
    living = ResultsFolder(tmp_path)
    held = living.path
    subprocess.run([sys.executable, "-c", program, str(tmp_path)], check=False)
    assert files(tmp_path) == 1
    (tmp_path / f"{PREFIX}foreign").mkdir()  # without a lock: somebody else's, or one that is just being made
    new = ResultsFolder(tmp_path)
    own = new.path
    assert sorted(tmp_path.iterdir()) == sorted([held, own, tmp_path / f"{PREFIX}foreign"])
    assert files(tmp_path) == 0
    new.close()
    living.close()


def test_results_and_jobs_without_one_push_out_only_their_like(shelf: Shelf) -> None:
    result, failed = made(shelf, 10), []
    for _ in range(shelf.most_jobs + 2):
        failed.append(job())
        shelf.put(failed[-1])
        failed[-1].fail(1, JobError("cancelled", "no"))
    assert shelf.get(result.id) is result
    assert [one for one in failed if shelf.get(one.id)] == failed[2:]


def test_a_file_that_cannot_be_removed_costs_nothing_else(shelf: Shelf, monkeypatch: pytest.MonkeyPatch) -> None:
    def broken(path: Path, missing_ok: bool = False) -> None:
        raise OSError(errno.EROFS, os.strerror(errno.EROFS))

    jobs = [made(shelf, 10) for _ in range(3)]
    monkeypatch.setattr(Path, "unlink", broken)
    newest = made(shelf, 10)
    assert (shelf.get(jobs[0].id), newest.status, len(shelf)) == (None, "completed", 3)


def test_a_folder_that_somebody_removed_is_made_anew(shelf: Shelf, tmp_path: Path) -> None:
    first = made(shelf, 10)
    (folder,) = tmp_path.iterdir()
    shutil.rmtree(folder)
    second = made(shelf, 10, parts=2)
    assert second.content is not None and second.content.read(1) == b"x" * 10
    with pytest.raises(FileNotFoundError):
        first.content.read(0)  # type: ignore[union-attr]
    shutil.rmtree(tmp_path)
    with pytest.raises(Failed, match="No such file or directory; the server's log names the file"):
        made(shelf, 10)
