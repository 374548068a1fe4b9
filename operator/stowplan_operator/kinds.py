"""The kinds of object that the operator reads or writes, once: their API paths and how one finds its deployment.

Adding a kind here is what makes the operator watch, list and (for children) keep it; the chart's Role must follow.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Final, TypeAlias

from stowplan_api import GROUP, VERSION

Json: TypeAlias = dict[str, Any]
"""An object as the API server speaks it."""


@dataclass(frozen=True)
class Kind:
    """One resource of the Kubernetes API, always a namespaced one here."""

    kind: str
    group: str
    version: str
    plural: str
    metadata_only: bool = False
    """Whether its content is none of a decision's business, so that lists do not bring it."""

    @property
    def api_version(self) -> str:
        """Group and version as manifests write them: ``apps/v1``, or ``v1`` for the core group."""
        return f"{self.group}/{self.version}" if self.group else self.version

    def path(self, namespace: str | None = None, name: str | None = None, subresource: str | None = None) -> str:
        """The URL path of the collection, of one object, or of its subresource."""
        root = f"/apis/{self.group}/{self.version}" if self.group else f"/api/{self.version}"
        scope = f"/namespaces/{namespace}" if namespace else ""
        tail = "".join(f"/{part}" for part in (name, subresource) if part)
        return f"{root}{scope}/{self.plural}{tail}"


DIFFUSION_DEPLOYMENT: Final = Kind("DiffusionDeployment", GROUP, VERSION, "diffusiondeployments")
RESIDENCY_PLACEMENT: Final = Kind("ResidencyPlacement", GROUP, VERSION, "residencyplacements")
POD: Final = Kind("Pod", "", "v1", "pods")
DEPLOYMENT: Final = Kind("Deployment", "apps", "v1", "deployments")
SERVICE: Final = Kind("Service", "", "v1", "services")
SERVICE_ACCOUNT: Final = Kind("ServiceAccount", "", "v1", "serviceaccounts")
ROLE_BINDING: Final = Kind("RoleBinding", "rbac.authorization.k8s.io", "v1", "rolebindings")
POD_DISRUPTION_BUDGET: Final = Kind("PodDisruptionBudget", "policy", "v1", "poddisruptionbudgets")
CONFIG_MAP: Final = Kind("ConfigMap", "", "v1", "configmaps", metadata_only=True)
EVENT: Final = Kind("Event", "events.k8s.io", "v1", "events")

CHILDREN: Final = (SERVICE_ACCOUNT, ROLE_BINDING, SERVICE, POD_DISRUPTION_BUDGET, DEPLOYMENT)
"""Kinds that a DiffusionDeployment owns, in the order they are created: what pods need comes before pods."""
WATCHED: Final = (DIFFUSION_DEPLOYMENT, RESIDENCY_PLACEMENT, POD, *CHILDREN)
LISTED: Final = (*WATCHED, CONFIG_MAP)
"""Kinds that a resync lists. Stored starts are large and only we write them: a list now and then is enough."""
SELECTED_BY_LABEL: Final = (POD, *CHILDREN, CONFIG_MAP)
"""Kinds of which only the objects with our deployment label are watched and listed."""

_BY_NAME: Final = {(kind.api_version, kind.kind): kind for kind in (*LISTED, EVENT)}


def kind_of(manifest: Json) -> Kind:
    """The kind of a manifest. Raises KeyError for one that the operator does not handle."""
    return _BY_NAME[manifest["apiVersion"], manifest["kind"]]
