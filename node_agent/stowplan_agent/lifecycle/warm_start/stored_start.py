"""The document that one proven start leaves for the next: what was measured, proven, and how to prove it again.

Only the agent reads it; the operator carries it about as text. Its digest is over everything else in it, so that a file
which was torn, cut or edited is known for what it is before anything is done with it.
"""

from __future__ import annotations

import hashlib
import json
from typing import Annotated, Any, Final, Literal, Self

from pydantic import Field

from stowplan_api.model import API_VERSION, ContractError, Document, Model, parse_json
from stowplan_api.placement import Placement
from stowplan_api.record import CalibrationRecord
from stowplan_api.residency_placement import PlanStatus

FORMAT: Final = 2
Digest = Annotated[str, Field(pattern=r"^[0-9a-f]{16,128}$")]
Amount = Annotated[int, Field(ge=0, le=(1 << 63) - 1, strict=True)]
Seconds = Annotated[float, Field(ge=0, le=1e9)]


class StoredCall(Model):
    """One interval of a request: a component (none between components), calls of its entry, passes in all."""

    component: str | None
    calls: Amount
    passes: Amount


class StepReference(Model):
    """What one full-shape request gave in the proven placement: of one step, or of the few that the proof ran."""

    shape: str
    """Name of the declared shape."""
    steps: Annotated[int, Field(ge=1, le=10_000)]
    digest: Digest
    """Of the output."""
    seconds: Seconds
    peak_bytes: Amount
    """Of device use, what is outside the allocator included."""
    reserved_peak_bytes: Amount
    calls: tuple[StoredCall, ...]
    """What it called, for the engine to expect again."""


class StoredStart(Document):
    """One start that ended Ready on a plan of its own record."""

    api_version: Literal["stowplan.dev/v1alpha1"] = API_VERSION  # type: ignore[assignment]
    kind: Literal["StoredStart"] = "StoredStart"
    format: Literal[2] = FORMAT
    """Of this document: another one is not read."""
    fingerprint: Digest
    """Over ``facts``; also the name of the file."""
    facts: dict[str, str]
    proven_at: str
    record: CalibrationRecord
    as_run: CalibrationRecord
    """Of ``reference``'s own request."""
    placement: Placement
    plan: PlanStatus
    pinned_bytes: Amount
    """Host memory that was locked when this was proven."""
    reference: StepReference
    """The first full-shape run, which was in the seed placement of that start; its peaks are those of the proof."""
    step: StepReference
    """One step of the declared shape that needs most memory, in ``placement``."""
    bounded_digest: Digest
    """Of the output of the bounded request."""

    def text(self) -> str:
        """The file: this document, and a digest of it."""
        content = self.to_json()
        return json.dumps({"digest": _digest(content), **content}, indent=1) + "\n"

    @classmethod
    def parse(cls, text: str, source: str) -> Self:
        """Read a file's text. Raises `ContractError` naming ``source`` and what is wrong with it."""
        try:
            data = parse_json(text)
        except (ValueError, RecursionError) as error:
            raise ContractError(f"{source}: is torn or no JSON ({error})") from None
        if not isinstance(data, dict):
            raise ContractError(f"{source}: is no stored start")
        if data.get("format") != FORMAT:
            raise ContractError(f"{source}: has format {data.get('format')!r}, and this version reads {FORMAT}")
        digest = data.pop("digest", None)
        try:
            damaged = digest != _digest(data)
        except RecursionError:
            raise ContractError(f"{source}: is nested too deep for a stored start") from None
        if damaged:
            raise ContractError(f"{source}: was changed or damaged: its digest is not that of what it says")
        return cls.from_json(data, source=source)


def _digest(content: dict[str, Any]) -> str:
    return hashlib.sha256(json.dumps(content, sort_keys=True, separators=(",", ":")).encode()).hexdigest()
