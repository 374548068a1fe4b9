"""Why ranks go back: the first failure of any of them, the same answer on all."""

from __future__ import annotations

from stowplan_agent.lifecycle.errors import StartError
from stowplan_agent.ranks.company import Company
from stowplan_api.contract import PlacementReason
from stowplan_api.residency_placement import Phase

Failure = tuple[float, Phase, StartError]
"""Of one rank: when (seconds of the clock that all processes of a machine share), at what, and why."""


def first_failure(company: Company, own: Failure | None, *, has_target: bool) -> tuple[Phase, StartError]:
    """At what a rank failed first, and why. All ranks come, from wherever they are. What others fail with follows.

    Where none has failed they were too late, and whatever may have been moved is to be gone back from: that is so once
    all ranks have a target. Raises `RankLost`.
    """
    said = None if own is None else [own[0], own[1], str(own[2].reason), str(own[2])]
    met = company.regroup([said, has_target])
    failures = [(*failure, rank) for rank, (failure, _) in enumerate(met) if failure is not None]
    if not failures:
        late = StartError(PlacementReason.DEADLINE_EXCEEDED, "the ranks did not come to an end in time")
        return "Validate" if all(target for _, target in met) else "Failed", late
    _, phase, reason, message, rank = min(failures)
    whose = message if rank == company.rank else f"rank {rank}: {message}"
    return phase, StartError(PlacementReason(reason), whose)
