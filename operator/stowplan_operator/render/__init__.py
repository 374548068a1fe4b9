"""What the cluster should hold for one DiffusionDeployment: pure functions of it and the settings, one file a kind."""

from __future__ import annotations

from typing import Any, Final

from pydantic import ValidationError

from stowplan_api.diffusion_deployment import DiffusionDeploymentSpec
from stowplan_api.model import first_problem
from stowplan_operator.kinds import Json
from stowplan_operator.render.deployment import deployment
from stowplan_operator.render.merge import MergeError
from stowplan_operator.render.pod_disruption_budget import pod_disruption_budget
from stowplan_operator.render.residency_placement import residency_placement
from stowplan_operator.render.service import service
from stowplan_operator.render.service_account import role_binding, service_account
from stowplan_operator.render.shared_devices import SharedDeviceError
from stowplan_operator.render.stored_starts import stored_starts
from stowplan_operator.settings import Settings

__all__ = ["SpecError", "children", "read_spec", "residency_placement", "stored_starts"]


DEEPEST_TEMPLATE: Final = 64
"""Mappings and lists within one another in a podTemplate; Kubernetes' own templates have about ten."""


class SpecError(ValueError):
    """A spec that cannot be rendered. The message is one sentence naming the field."""


def read_spec(dd: Json) -> DiffusionDeploymentSpec:
    """The spec as a value. Raises `SpecError`; the CRD's schema refuses most of what would get here."""
    raw = dd.get("spec") or {}
    if _deeper(raw.get("podTemplate"), DEEPEST_TEMPLATE):
        raise SpecError(f"spec.podTemplate is nested deeper than {DEEPEST_TEMPLATE} levels; no pod has so many")
    try:
        return DiffusionDeploymentSpec.model_validate(raw)
    except ValidationError as error:
        raise SpecError(first_problem(error, dd["metadata"]["name"], "DiffusionDeployment")) from None


def _deeper(value: Any, limit: int) -> bool:
    """Whether a JSON value is nested deeper, found without going down into it by recursion."""
    level = [value]
    for _ in range(limit):
        below = [list(one.values()) if isinstance(one, dict) else one for one in level if isinstance(one, (dict, list))]
        level = [element for elements in below for element in elements]
    return any(isinstance(one, (dict, list)) for one in level)


def children(dd: Json, spec: DiffusionDeploymentSpec, settings: Settings, standing: str = "") -> tuple[Json, ...]:
    """Every child in the order of creation (the Deployment last). Raises `SpecError` for what no pod can be made of.

    ``standing`` is the hash of the pod template that there is; empty for none.
    """
    try:
        pods = deployment(dd, spec, settings, standing)
    except (MergeError, SharedDeviceError) as error:
        raise SpecError(str(error)) from None
    account = pods["spec"]["template"]["spec"].get("serviceAccountName", "default")
    return (
        service_account(dd),
        role_binding(dd, settings, account),
        service(dd, spec),
        pod_disruption_budget(dd),
        pods,
    )
