"""The files in the tree are the ones that the models generate."""

from __future__ import annotations

from pathlib import Path

import pytest

from stowplan_api.__main__ import main
from stowplan_api.generate import files

ROOT = Path(__file__).parents[3]


@pytest.mark.parametrize("name", sorted(files()))
def test_the_tree_has_what_is_generated(name: str) -> None:
    assert (ROOT / name).read_text(encoding="utf-8") == files()[name], "run python -m stowplan_api"


def test_a_check_finds_differences_and_writes_nothing(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["--check", "--root", str(tmp_path)]) == 1
    assert list(tmp_path.iterdir()) == []
    assert capsys.readouterr().out.count("differs; run python -m stowplan_api") == len(files())


def test_writing_makes_the_check_pass(tmp_path: Path) -> None:
    assert main(["--root", str(tmp_path)]) == 0
    assert main(["--check", "--root", str(tmp_path)]) == 0
