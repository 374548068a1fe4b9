"""Who this agent is, as the operator wrote it into the pod's environment.

Absent outside a pod: then there is nobody to report to, and the same start-up runs with a `LocalReporter`.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from pydantic import ValidationError

from stowplan_api.contract import Env
from stowplan_api.diffusion_deployment import DiffusionDeploymentSpec
from stowplan_api.model import ContractError, first_problem
from stowplan_api.quantity import parse_quantity

_REQUIRED = (Env.SPEC, Env.DEPLOYMENT, Env.NAMESPACE, Env.POD_NAME, Env.POD_UID, Env.MEMORY_LIMIT)


@dataclass(frozen=True)
class PodIdentity:
    """One pod, and what it was rendered from."""

    spec: DiffusionDeploymentSpec
    """Of the DiffusionDeployment, without the fields that do not change what a pod does."""
    deployment: str
    namespace: str
    pod_name: str
    pod_uid: str
    memory_limit: int
    """Bytes: the container's memory limit."""
    accelerator: str | None = None
    """``emulated``, or None: what the machine has."""


def read_identity(environ: Mapping[str, str]) -> PodIdentity | None:
    """The identity in an environment; None outside a pod (no STOWPLAN_POD_NAME).

    Raises ContractError, in one sentence, when a variable is missing or is not what it should be: a half-known pod
    would report for somebody else.
    """
    if not environ.get(Env.POD_NAME):
        return None
    missing = [str(name) for name in _REQUIRED if not environ.get(name)]
    if missing:
        raise ContractError(
            f"the environment has {Env.POD_NAME} but not {', '.join(missing)}; the operator sets all of them, "
            f"so unset {Env.POD_NAME} to run outside a cluster"
        )
    return PodIdentity(
        spec=_spec(environ[Env.SPEC]),
        deployment=environ[Env.DEPLOYMENT],
        namespace=environ[Env.NAMESPACE],
        pod_name=environ[Env.POD_NAME],
        pod_uid=environ[Env.POD_UID],
        memory_limit=_bytes(environ[Env.MEMORY_LIMIT]),
        accelerator=environ.get(Env.ACCELERATOR) or None,
    )


def _spec(text: str) -> DiffusionDeploymentSpec:
    try:
        return DiffusionDeploymentSpec.model_validate_json(text)
    except ValidationError as error:
        raise ContractError(first_problem(error, str(Env.SPEC), "DiffusionDeploymentSpec")) from None


def _bytes(text: str) -> int:
    try:
        return parse_quantity(text)
    except ValueError as error:
        raise ContractError(f"{Env.MEMORY_LIMIT}: {error}") from None
