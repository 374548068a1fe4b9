"""Fields that an older CustomResourceDefinition drops, as a value that decisions take into account."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any, Self

from stowplan_api.conditions import shorten
from stowplan_api.contract import DeploymentReason
from stowplan_operator.decide.trouble import Trouble


@dataclass(frozen=True)
class Dropped:
    """Paths of a DiffusionDeployment's fields, such as ``spec.rollout.strategy``."""

    spec: tuple[str, ...] = ()
    """A user may have set them, and nobody can know."""
    status: tuple[str, ...] = ()
    """They must not be written: server-side apply refuses a field that no schema declares."""

    @classmethod
    def of(cls, fields: Iterable[str]) -> Self:
        """Sort paths into those of the spec and those of the status."""
        paths = tuple(fields)
        return cls(
            spec=tuple(path for path in paths if path.partition(".")[0] == "spec"),
            status=tuple(path for path in paths if path.partition(".")[0] == "status"),
        )

    def trouble(self) -> Trouble | None:
        """Why no deployment is Ready while its spec may lack something; None when nothing is dropped."""
        if not self.spec:
            return None
        message = (
            f"the CustomResourceDefinition is older than the operator and drops {', '.join(self.spec)}, so this spec "
            "may not be what was asked for; update the definition"
        )
        return Trouble(DeploymentReason.DEFINITION_OUTDATED, shorten(message), final=True)

    def kept(self, status: dict[str, Any]) -> dict[str, Any]:
        """A status without what would be refused."""
        for path in self.status:
            status = _without(status, path.split(".")[1:])
        return status


def _without(value: Any, path: list[str]) -> Any:
    """A copy of a JSON value without one path, in every element of a list on the way (``conditions[].message``)."""
    name = path[0].removesuffix("[]")
    if not isinstance(value, dict) or name not in value:
        return value
    if len(path) == 1:
        return {key: child for key, child in value.items() if key != name}
    below = value[name]
    inner = [_without(child, path[1:]) for child in below] if path[0].endswith("[]") else _without(below, path[1:])
    return {**value, name: inner}
