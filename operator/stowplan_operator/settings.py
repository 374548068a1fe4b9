"""What an administrator may set: read once from the environment, checked, and passed to everything as a value.

The chart sets these variables; their names are the contract's `OperatorEnv`. An unreadable value ends the process with
one sentence, before anything was written to the cluster.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import yaml

from stowplan_api.contract import AGENT_ROLE, OperatorEnv

_PULL_POLICIES = ("", "Always", "IfNotPresent", "Never")
_LOG_LEVELS = ("debug", "info", "warning", "error")


class SettingsError(ValueError):
    """An environment variable that cannot be used. The message is one sentence that says which and why."""


@dataclass(frozen=True)
class Settings:
    """Everything that does not come from the cluster."""

    agent_image: str
    """Image of the server container where ``spec.serving.image`` is absent."""
    agent_image_pull_policy: str = ""
    """Empty: Kubernetes' own default."""
    agent_pod_template: dict[str, Any] = field(default_factory=dict)
    """A partial pod template between what is rendered and what the user writes."""
    agent_role: str = AGENT_ROLE
    """The ClusterRole that is bound to each agent's ServiceAccount."""
    namespaces: tuple[str, ...] = ()
    """Namespaces to serve; none means all of them."""
    resync_seconds: int = 180
    """Between two full lists of everything. What a lost event hid is repaired within this time."""
    workers: int = 16
    """Deployments reconciled at once."""
    liveness_port: int = 8080
    metrics_port: int = 9090
    log_level: str = "info"
    kubeconfig: str = ""
    """Path, for an operator that runs outside the cluster; in a pod its service account comes first."""
    instance: str = "stowplan-operator"
    """Reported in Events: the operator's pod name."""


def read(environ: Mapping[str, str]) -> Settings:
    """Settings from environment variables. Raises `SettingsError` for a missing image or an unusable value."""
    image = environ.get(OperatorEnv.AGENT_IMAGE, "")
    if not image:
        raise SettingsError(f"{OperatorEnv.AGENT_IMAGE} is not set; give the image of the serving container")
    policy = _one_of(environ, OperatorEnv.AGENT_IMAGE_PULL_POLICY, "", _PULL_POLICIES)
    path = environ.get(OperatorEnv.AGENT_POD_TEMPLATE, "")
    return Settings(
        agent_image=image,
        agent_image_pull_policy=policy,
        agent_pod_template=_template(Path(path)) if path else {},
        agent_role=environ.get(OperatorEnv.AGENT_ROLE) or AGENT_ROLE,
        namespaces=tuple(part for part in environ.get(OperatorEnv.WATCH_NAMESPACES, "").split(",") if part),
        resync_seconds=_integer(environ, OperatorEnv.RESYNC_SECONDS, 180, 5, 86_400),
        liveness_port=_integer(environ, OperatorEnv.LIVENESS_PORT, 8080, 1, 65_535),
        metrics_port=_integer(environ, OperatorEnv.METRICS_PORT, 9090, 1, 65_535),
        log_level=_one_of(environ, OperatorEnv.LOG_LEVEL, "info", _LOG_LEVELS),
        kubeconfig=environ.get("KUBECONFIG", ""),
        instance=environ.get(OperatorEnv.POD_NAME) or environ.get("HOSTNAME") or "stowplan-operator",
    )


def _integer(environ: Mapping[str, str], name: str, default: int, low: int, high: int) -> int:
    text = environ.get(name, "")
    if not text:
        return default
    if not text.isdecimal() or not low <= int(text) <= high:
        raise SettingsError(f"{name} is {text!r}; give a whole number from {low} to {high}")
    return int(text)


def _one_of(environ: Mapping[str, str], name: str, default: str, allowed: tuple[str, ...]) -> str:
    text = environ.get(name, default)
    if text not in allowed:
        raise SettingsError(f"{name} is {text!r}; give one of {', '.join(repr(value) for value in allowed)}")
    return text


def _template(path: Path) -> dict[str, Any]:
    where = f"{OperatorEnv.AGENT_POD_TEMPLATE}: {path}"
    try:
        data = yaml.safe_load(path.read_text(encoding="utf-8"))
    except OSError as error:
        raise SettingsError(f"{where} cannot be read ({error.strerror})") from None
    except yaml.YAMLError as error:
        raise SettingsError(f"{where} is not YAML ({str(error).splitlines()[0]})") from None
    if data is None:
        return {}
    if not isinstance(data, dict):
        raise SettingsError(f"{where} is not a partial pod template; it must be a mapping with metadata or spec")
    return data
