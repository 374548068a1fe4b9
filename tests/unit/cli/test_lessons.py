"""--help teaches: every command has examples that it takes, exit codes are said, and kubectl finds its plug-in."""

from __future__ import annotations

import re
import shlex
import sys
import tomllib
from importlib.metadata import entry_points
from pathlib import Path

import pytest
import typer
from typer.testing import CliRunner

from stowplan_agent.cli import PLUGIN, app
from stowplan_agent.cli.kubectl_completion import complete
from stowplan_agent.cli.lessons import EXAMPLES, EXIT_CODES
from stowplan_api.contract import ROLLBACK_FAILED_EXIT

COMMANDS = {command.callback.__name__ for command in app.registered_commands if command.callback is not None}
ASKED = [text for examples in EXAMPLES.values() for text, _ in examples if text.startswith("stowplan ")]


def plain(text: str) -> str:
    """Without colours, frames and line ends, as words one after another."""
    return " ".join(re.sub(r"\x1b\[[0-9;]*m|[│╭╮╰╯─]", " ", text).split())


def test_every_command_has_examples_and_shows_them() -> None:
    assert EXAMPLES.keys() == COMMANDS
    for name in COMMANDS:
        done = CliRunner().invoke(app, [name, "--help"], env={"COLUMNS": "200", "TERM": "dumb"})
        assert done.exit_code == 0
        for text, meaning in EXAMPLES[name]:
            assert text in plain(done.output) and meaning in plain(done.output)


@pytest.mark.parametrize("text", ASKED)
def test_every_example_is_taken_by_its_command(text: str) -> None:
    group = typer.main.get_command(app)
    words = shlex.split(text)
    if ">" in words:
        words = words[: words.index(">")]
    if "|" in words:
        words = words[: words.index("|")]
    command = group.commands[words[1]]  # type: ignore[attr-defined]
    assert command.make_context(words[1], words[2:]).params


def test_exit_codes_are_said() -> None:
    done = CliRunner().invoke(app, ["--help"], env={"COLUMNS": "200", "TERM": "dumb"})
    for code, meaning in EXIT_CODES.items():
        assert f"{code}: {meaning}" in plain(done.output)
    assert ROLLBACK_FAILED_EXIT in EXIT_CODES


@pytest.mark.parametrize("shell", ["bash", "zsh", "fish"])
def test_a_shell_completes_commands_and_options(shell: str) -> None:
    environment = {"_STOWPLAN_COMPLETE": f"complete_{shell}", "COMP_WORDS": "stowplan sta", "COMP_CWORD": "1"}
    environment |= {"_TYPER_COMPLETE_ARGS": "stowplan sta", "_TYPER_COMPLETE_FISH_ACTION": "get-args"}
    done = CliRunner().invoke(app, [], env=environment, prog_name="stowplan")
    assert "status" in done.output and "report" not in done.output
    assert "--show-completion" in CliRunner().invoke(app, ["--help"]).output


@pytest.mark.parametrize(
    ("words", "offered"), [(["sta"], ["status"]), (["status", "--on"], ["--once"]), (["report", "r.j"], [])]
)
def test_kubectl_completes_its_plug_in(
    words: list[str], offered: list[str], monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    for name in ("_STOWPLAN_COMPLETE", "COMP_WORDS", "COMP_CWORD"):
        monkeypatch.setenv(name, "")
    monkeypatch.setattr(sys, "argv", ["/usr/bin/kubectl_complete-stowplan", *words])
    complete()
    *candidates, directive = capsys.readouterr().out.splitlines()
    assert (candidates, directive) == (offered, ":0")


def test_kubectl_finds_it_and_it_calls_itself_so(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    scripts = tomllib.loads((Path(__file__).parents[3] / "pyproject.toml").read_text())["project"]["scripts"]
    assert scripts[PLUGIN] == scripts["stowplan"]
    assert entry_points(group="console_scripts", name="stowplan")
    monkeypatch.setattr(sys, "argv", [f"/usr/bin/{PLUGIN}", "--help"])
    with pytest.raises(SystemExit) as ended:
        app()
    assert ended.value.code == 0
    assert "kubectl stowplan [OPTIONS] COMMAND" in plain(capsys.readouterr().out)
