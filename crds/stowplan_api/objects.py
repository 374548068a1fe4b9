"""Whole Kubernetes objects, as the API server returns them.

Metadata is read for what both sides need and no more; fields that a newer server adds are ignored. A spec stays strict:
a field that this version does not know is something a user asked for and would not get.
"""

from __future__ import annotations

from typing import ClassVar, Literal

from pydantic import ConfigDict, Field

from stowplan_api.diffusion_deployment import DiffusionDeploymentSpec, DiffusionDeploymentStatus
from stowplan_api.model import API_VERSION, Document, Model
from stowplan_api.residency_placement import ResidencyPlacementSpec, ResidencyPlacementStatus


class ObjectMeta(Model):
    """The part of metav1.ObjectMeta that the contract reads."""

    model_config: ClassVar[ConfigDict] = ConfigDict(extra="ignore")

    name: str
    namespace: str = "default"
    uid: str = ""
    generation: int = 0
    resource_version: str = ""
    deletion_timestamp: str | None = None
    labels: dict[str, str] = Field(default_factory=dict)


class DiffusionDeployment(Document):
    """A DiffusionDeployment with its metadata."""

    api_version: Literal["stowplan.dev/v1alpha1"] = API_VERSION  # type: ignore[assignment]
    kind: Literal["DiffusionDeployment"] = "DiffusionDeployment"
    metadata: ObjectMeta
    spec: DiffusionDeploymentSpec
    status: DiffusionDeploymentStatus = DiffusionDeploymentStatus()


class ResidencyPlacement(Document):
    """A ResidencyPlacement with its metadata."""

    api_version: Literal["stowplan.dev/v1alpha1"] = API_VERSION  # type: ignore[assignment]
    kind: Literal["ResidencyPlacement"] = "ResidencyPlacement"
    metadata: ObjectMeta
    spec: ResidencyPlacementSpec
    status: ResidencyPlacementStatus = ResidencyPlacementStatus()
