"""The Dockerfiles, read: two stages on one base that is an argument, a numeric user who is not root, little context."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from localcluster.chart import template
from stowplan_api.contract import AGENT_COMMAND

ROOT = Path(__file__).parents[3]
FILES = ["operator/Dockerfile", "node_agent/Dockerfile"]
Instruction = tuple[str, str]


def instructions(file: str) -> list[Instruction]:
    """Each instruction and its arguments, with continued lines joined and comments dropped."""
    text = "\n".join(line for line in (ROOT / file).read_text().splitlines() if not line.startswith("#"))
    lines = [line for line in text.replace("\\\n", " ").splitlines() if line.strip()]
    return [(word, rest.strip()) for word, _, rest in (line.partition(" ") for line in lines)]


def final(file: str) -> list[Instruction]:
    """The instructions of the last stage."""
    found = instructions(file)
    last = max(index for index, (word, _) in enumerate(found) if word == "FROM")
    return found[last:]


@pytest.mark.parametrize("file", FILES)
def test_both_stages_stand_on_one_base_that_a_build_may_pin(file: str) -> None:
    found = instructions(file)
    assert found[0][0] == "ARG"
    assert re.fullmatch(r"BASE=[a-z]+:[0-9.]+-slim", found[0][1]), "a base with a version, never latest"
    assert [rest for word, rest in found if word == "FROM"] == ["${BASE} AS build", "${BASE}"]


@pytest.mark.parametrize("file", FILES)
def test_the_image_runs_as_the_user_that_the_pods_run_as(file: str) -> None:
    (deployment,) = [item for item in template() if item["kind"] == "Deployment"]
    context = deployment["spec"]["template"]["spec"]["securityContext"]
    users = [rest for word, rest in final(file) if word == "USER"]
    assert users == [f"{context['runAsUser']}:{context['runAsGroup']}"]


@pytest.mark.parametrize("file", FILES)
def test_a_user_without_an_entry_in_passwd_has_a_name(file: str) -> None:
    """kopf and torch end with a KeyError otherwise: `getpwuid(): uid not found`."""
    (environment,) = [rest for word, rest in final(file) if word == "ENV"]
    assert "LOGNAME=stowplan" in environment.split()


@pytest.mark.parametrize("file", FILES)
def test_the_last_stage_only_copies_what_the_first_installed(file: str) -> None:
    words = [word for word, _ in final(file)]
    assert not {"RUN", "ADD", "ARG", "VOLUME"} & set(words)
    assert [rest for word, rest in final(file) if word == "COPY"] == ["--from=build /opt/stowplan /opt/stowplan"]


@pytest.mark.parametrize("file", FILES)
def test_versions_are_the_ones_that_were_tested(file: str) -> None:
    installs = [rest for word, rest in instructions(file) if word == "RUN" and "pip install" in rest]
    assert installs
    for command in installs:
        assert command.count("pip install") == command.count("--constraint constraints.txt")
    assert not any(re.search(r"curl|wget|apt-get|http", rest) for _, rest in instructions(file))


@pytest.mark.parametrize("file", FILES)
def test_what_is_copied_is_there_and_not_ignored(file: str) -> None:
    ignored = (ROOT / ".dockerignore").read_text().splitlines()
    assert "*" in ignored
    copied = [
        part
        for word, rest in instructions(file)
        if word == "COPY" and "--from" not in rest
        for part in rest.split()[:-1]
    ]
    for name in copied:
        assert (ROOT / name).exists()
        assert f"!{name}" in ignored


def test_ports_and_commands_are_those_of_the_chart_and_the_contract() -> None:
    (deployment,) = [item for item in template() if item["kind"] == "Deployment"]
    (container,) = deployment["spec"]["template"]["spec"]["containers"]
    ports = " ".join(str(port["containerPort"]) for port in container["ports"])
    assert ("EXPOSE", ports) in final("operator/Dockerfile")
    assert ("ENTRYPOINT", '["python", "-m", "stowplan_operator"]') in final("operator/Dockerfile")
    assert final("node_agent/Dockerfile")[-2:] == [
        ("ENTRYPOINT", f'["{AGENT_COMMAND[0]}"]'),
        ("CMD", f'["{AGENT_COMMAND[1]}"]'),
    ]
