"""Is a placement proven? A pure judgement over what one validation request measured.

Seconds are judged against the reference, the first full-shape run, with a margin of the larger of a share and 50 ms;
output bit for bit, or, where two runs of the reference itself differ, by no more than they do. What is allocated at its
peak is judged against what this process may use less the reserve, as planned. What the allocator reserves is judged
against all that it may use: it keeps what was freed for as long as there is room and gives it back before it fails (an
H200 held to 32 GiB: a request that needed 12 reserved 31.8), so only where even that is too much does memory in
pieces stand in the way; the reserve is there for a little of it.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from stowplan_api.contract import PlacementReason
from stowplan_api.quantity import for_people

SLACK_SECONDS: Final = 0.05
"""RUNTIME.md, Validate: worse by more than max(5 %, 50 ms)."""


@dataclass(frozen=True)
class Reference:
    """What the first full-shape run gave: a digest of the output, and its seconds."""

    digest: str
    seconds: float
    spread: float | None = None
    """How far apart two more runs of it are (`spread.distance`); None where they repeat it bit for bit."""


@dataclass(frozen=True)
class Measured:
    """What the validation request gave. Peaks are bytes of device use, what is outside the allocator included.

    ``seconds`` is None where they are not to be judged.
    """

    digest: str
    seconds: float | None
    peak_bytes: int
    reserved_peak_bytes: int
    distance: float | None = None
    """How far the output is from the nearest run of the reference, where that does not repeat itself."""

    def repeats(self, reference: Reference) -> bool:
        """Whether the output is the reference's, as far as that can be said."""
        if self.digest == reference.digest:
            return True
        return reference.spread is not None and self.distance is not None and self.distance <= reference.spread


@dataclass(frozen=True)
class Criteria:
    """What must hold. ``max_slowdown`` is a share: 0.05 for 5 %."""

    capacity_bytes: int
    reserve_bytes: int
    max_slowdown: float = 0.05
    reproducible: bool = True


@dataclass(frozen=True)
class Finding:
    """One criterion that failed: a stable reason and one sentence with numbers."""

    reason: PlacementReason
    message: str


def judge(reference: Reference, measured: Measured, criteria: Criteria) -> tuple[Finding, ...]:
    """Every criterion that failed, the most serious first; empty when the placement is proven."""
    findings: list[Finding] = []
    if criteria.reproducible and not measured.repeats(reference):
        message = f"the output differs from the reference: {measured.digest[:12]} and not {reference.digest[:12]}"
        if reference.spread is not None and measured.distance is not None:
            message += f", by {measured.distance:.3g}, and two runs of the reference itself by {reference.spread:.3g}"
        findings.append(Finding(PlacementReason.OUTPUT_DIFFERS, message))
    findings += judge_memory(measured, criteria)
    if measured.seconds is not None:
        allowed = reference.seconds + max(criteria.max_slowdown * reference.seconds, SLACK_SECONDS)
        if measured.seconds > allowed:
            findings.append(
                Finding(
                    PlacementReason.TOO_SLOW,
                    f"a request takes {measured.seconds:.3f} s, the reference took {reference.seconds:.3f} s, and at "
                    f"most {allowed:.3f} s are allowed",
                )
            )
    return tuple(findings)


def judge_memory(measured: Measured, criteria: Criteria) -> tuple[Finding, ...]:
    """The criteria of memory that failed: all that is judged of a request without a reference."""
    findings: list[Finding] = []
    capacity, reserve = criteria.capacity_bytes, criteria.reserve_bytes
    if measured.peak_bytes > capacity - reserve:
        findings.append(
            Finding(
                PlacementReason.PEAK_OVER_BUDGET,
                f"the allocated peak of {for_people(measured.peak_bytes)} is "
                f"{for_people(measured.peak_bytes - capacity + reserve)} above the budget of "
                f"{for_people(capacity - reserve)} ({for_people(capacity)} less a reserve of {for_people(reserve)})",
            )
        )
    if measured.reserved_peak_bytes > capacity:
        findings.append(
            Finding(
                PlacementReason.PEAK_OVER_BUDGET,
                f"the reserved peak of {for_people(measured.reserved_peak_bytes)} is "
                f"{for_people(measured.reserved_peak_bytes - capacity)} above the {for_people(capacity)} that this "
                "process may use",
            )
        )
    return tuple(findings)
