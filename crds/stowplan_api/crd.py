"""The two CustomResourceDefinitions, built from the models.

A kind is a row of data: names, columns, subresources, rules about its own metadata. Everything about fields comes from
the models, so that the API server checks what the programs read.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final

from stowplan_api.diffusion_deployment import UNSEEN, DiffusionDeploymentSpec, DiffusionDeploymentStatus
from stowplan_api.markers import rules
from stowplan_api.model import GROUP, VERSION, Model
from stowplan_api.residency_placement import ResidencyPlacementSpec, ResidencyPlacementStatus
from stowplan_api.rules import NAME, Rule
from stowplan_api.schema import Schema, spec_schema, status_schema


@dataclass(frozen=True)
class Column:
    """One column of ``kubectl get``; a wide one needs ``-o wide``."""

    name: str
    path: str
    description: str
    type: str = "string"
    wide: bool = False

    def to_json(self) -> dict[str, Any]:
        """The entry of additionalPrinterColumns."""
        wide = {"priority": 1} if self.wide else {}
        return {
            "name": self.name,
            "type": self.type,
            "jsonPath": self.path,
            "description": self.description,
            **wide,
        }


@dataclass(frozen=True)
class Kind:
    """Everything of one CRD that its models do not say."""

    name: str
    plural: str
    short: str
    description: str
    spec: type[Model]
    status: type[Model]
    columns: tuple[Column, ...]
    rules: tuple[Rule, ...] = ()
    scale: bool = False
    unseen: Mapping[str, int] | None = None
    """Status of an object that no controller has seen. Without one, kstatus (Flux) takes a new object for finished."""


def _condition(type_: str, field: str) -> str:
    return f'.status.conditions[?(@.type=="{type_}")].{field}'


AGE: Final = Column("Age", ".metadata.creationTimestamp", "Time since it was created.", "date")

DIFFUSION_DEPLOYMENT: Final = Kind(
    name="DiffusionDeployment",
    plural="diffusiondeployments",
    short="dd",
    description="A diffusion model to serve: pods that measure it, plan where its weights live, and prove the plan.",
    spec=DiffusionDeploymentSpec,
    status=DiffusionDeploymentStatus,
    columns=(
        Column("Model", ".spec.model.source", "Where the checkpoint comes from."),
        Column("Ready", _condition("Ready", "status"), "This generation is rolled out and validated."),
        Column("Validated", ".status.validatedReplicas", "Pods whose placement is validated.", "integer"),
        Column("Replicas", ".spec.replicas", "Pods wanted.", "integer"),
        Column("Reason", _condition("Ready", "reason"), "Why it is Ready or not."),
        AGE,
        Column("Device", ".status.device", "Product name of the devices.", wide=True),
        Column("Peak", ".status.peak", "Highest device use of a validated request.", wide=True),
        Column("Seconds", ".status.seconds", "Time of one request at the default shape.", wide=True),
        Column("Rollbacks", ".status.rollbacks", "Rollbacks so far.", "integer", wide=True),
    ),
    rules=NAME,
    scale=True,
    unseen={"observedGeneration": UNSEEN},
)

RESIDENCY_PLACEMENT: Final = Kind(
    name="ResidencyPlacement",
    plural="residencyplacements",
    short="rp",
    description="Where one pod's weights live, how that was proven, and what was taken back. Named after its pod.",
    spec=ResidencyPlacementSpec,
    status=ResidencyPlacementStatus,
    columns=(
        Column("Deployment", ".spec.deployment", "The DiffusionDeployment of its pod."),
        Column("Phase", ".status.phase", "Where this boot of the agent is."),
        Column("Validated", _condition("Validated", "status"), "The placement in force was proven in this boot."),
        Column("Device", ".status.ranks[0].device", "Product name of the first rank's device."),
        Column("Peak", ".status.peak", "Highest device use of a validated request."),
        Column("Resident", ".status.resident", "Resident layers of all repeated layers."),
        Column("Seconds", ".status.seconds", "Time of the validated request."),
        AGE,
    ),
)

KINDS: Final = (DIFFUSION_DEPLOYMENT, RESIDENCY_PLACEMENT)


def schema(kind: Kind) -> Schema:
    """openAPIV3Schema of one kind: the object around its spec and status."""
    result: Schema = {
        "description": kind.description,
        "type": "object",
        "required": ["spec"],
        "properties": {
            "apiVersion": {"type": "string"},
            "kind": {"type": "string"},
            "metadata": {"type": "object"},
            "spec": spec_schema(kind.spec),
            "status": status_schema(kind.status) | ({"default": dict(kind.unseen)} if kind.unseen else {}),
        },
    }
    return result | (rules(*kind.rules) if kind.rules else {})


def definition(kind: Kind) -> dict[str, Any]:
    """The CustomResourceDefinition of one kind, as plain JSON types."""
    subresources: dict[str, Any] = {"status": {}}
    if kind.scale:
        subresources["scale"] = {
            "specReplicasPath": ".spec.replicas",
            "statusReplicasPath": ".status.replicas",
            "labelSelectorPath": ".status.selector",
        }
    return {
        "apiVersion": "apiextensions.k8s.io/v1",
        "kind": "CustomResourceDefinition",
        "metadata": {"name": f"{kind.plural}.{GROUP}"},
        "spec": {
            "group": GROUP,
            "scope": "Namespaced",
            "names": {
                "kind": kind.name,
                "listKind": f"{kind.name}List",
                "plural": kind.plural,
                "singular": kind.name.lower(),
                "shortNames": [kind.short],
                "categories": ["stowplan"],
            },
            "versions": [
                {
                    "name": VERSION,
                    "served": True,
                    "storage": True,
                    "additionalPrinterColumns": [column.to_json() for column in kind.columns],
                    "subresources": subresources,
                    "schema": {"openAPIV3Schema": schema(kind)},
                }
            ],
        },
    }
