"""Settings are checked before anything is written; each refusal names the variable and what it takes."""

from __future__ import annotations

from pathlib import Path

import pytest

from stowplan_operator.settings import SettingsError, read

IMAGE = {"STOWPLAN_AGENT_IMAGE": "agent:1"}


def test_defaults_and_values(tmp_path: Path) -> None:
    template = tmp_path / "template.yaml"
    template.write_text("spec: {nodeSelector: {a: b}}")
    settings = read(
        IMAGE
        | {
            "STOWPLAN_AGENT_IMAGE_PULL_POLICY": "Never",
            "STOWPLAN_AGENT_POD_TEMPLATE": str(template),
            "STOWPLAN_WATCH_NAMESPACES": "a,b",
            "STOWPLAN_RESYNC_SECONDS": "30",
        }
    )
    assert settings.agent_pod_template == {"spec": {"nodeSelector": {"a": "b"}}}
    assert settings.namespaces == ("a", "b")
    assert (settings.resync_seconds, settings.liveness_port, settings.metrics_port) == (30, 8080, 9090)
    assert settings.agent_role == "stowplan-agent"


@pytest.mark.parametrize(
    ("environ", "message"),
    [
        ({}, "STOWPLAN_AGENT_IMAGE is not set; give the image of the serving container"),
        (
            IMAGE | {"STOWPLAN_RESYNC_SECONDS": "1"},
            "STOWPLAN_RESYNC_SECONDS is '1'; give a whole number from 5 to 86400",
        ),
        (
            IMAGE | {"STOWPLAN_METRICS_PORT": "x"},
            "STOWPLAN_METRICS_PORT is 'x'; give a whole number from 1 to 65535",
        ),
        (
            IMAGE | {"STOWPLAN_LOG_LEVEL": "loud"},
            "STOWPLAN_LOG_LEVEL is 'loud'; give one of 'debug', 'info', 'warning', 'error'",
        ),
        (
            IMAGE | {"STOWPLAN_AGENT_POD_TEMPLATE": "missing.yaml"},
            "STOWPLAN_AGENT_POD_TEMPLATE: missing.yaml cannot be read (No such file or directory)",
        ),
    ],
)
def test_unusable_values_are_named(environ: dict[str, str], message: str) -> None:
    with pytest.raises(SettingsError) as error:
        read(environ)
    assert str(error.value) == message


def test_a_template_that_is_no_mapping_is_refused(tmp_path: Path) -> None:
    template = tmp_path / "template.yaml"
    template.write_text("- a")
    with pytest.raises(SettingsError, match="is not a partial pod template"):
        read(IMAGE | {"STOWPLAN_AGENT_POD_TEMPLATE": str(template)})
