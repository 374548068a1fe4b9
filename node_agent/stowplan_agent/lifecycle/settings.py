"""What one start of the agent is told, from the operator's spec or from a command line."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

from stowplan_agent.lifecycle.deadlines import phase_deadlines
from stowplan_agent.ranks.alone import Alone
from stowplan_agent.transaction import Faults
from stowplan_agent.transaction.faults import of_rank
from stowplan_api.contract import RECORD_DIR, Env
from stowplan_api.diffusion_deployment import DiffusionDeploymentSpec
from stowplan_api.residency_placement import Phase

DISABLE: Final = "STOWPLAN_DISABLE_AUTO_RESIDENCY"
"""Set to anything but `OFF`: prove and serve the seed placement, whatever the spec says."""
OFF: Final = frozenset({"", "0", "false", "no", "off"})
"""What a kill switch must not be mistaken about: everything else is yes."""
CLAIMS: Final = Path("/claims")
"""Where the operator mounts the claims of pvc:// sources, each under its own name."""


@dataclass(frozen=True)
class StartSettings:
    """Everything that a start depends on; nothing is read from the environment after this."""

    spec: DiffusionDeploymentSpec
    accelerator: str
    """``cuda`` or ``emulated``."""
    memory_limit: int | None = None
    """Bytes of host memory that this process may use, as stated from outside; None: what the machine says."""
    environment: Mapping[str, str] = field(default_factory=dict)
    """For the emulated card."""
    faults: Faults = field(default_factory=Faults)
    disabled: bool = False
    root: Path = Path("/")
    """The machine's root, for /proc and cgroups."""
    claims: Path = CLAIMS
    record_dir: Path | None = None
    """Directory of stored starts; None: every start measures anew."""
    deadlines: Mapping[Phase, float] = field(default_factory=dict)
    """Seconds that each phase may take; one that is not there may take any."""
    company: Alone = field(default_factory=Alone)
    """The other ranks, where there are any."""

    @classmethod
    def read(
        cls,
        spec: DiffusionDeploymentSpec,
        environment: Mapping[str, str],
        *,
        memory_limit: int | None = None,
        company: Alone | None = None,
    ) -> StartSettings:
        """Settings of a spec in an environment. Ranks of a company keep no stored start: all of them measure anew.

        Raises `FaultError` for an unknown fault, and `ContractError` for deadlines that are none.
        """
        company = Alone() if company is None else company
        records = environment.get(RECORD_DIR, "").strip() if company.ranks == 1 else ""
        return cls(
            spec=spec,
            accelerator=environment.get(Env.ACCELERATOR) or "cuda",
            memory_limit=memory_limit,
            environment=environment,
            faults=Faults(of_rank(environment.get(Env.FAULTS, ""), company.rank)),
            disabled=environment.get(DISABLE, "").strip().lower() not in OFF,
            record_dir=Path(records) if records else None,
            deadlines=phase_deadlines(spec, memory_limit, environment),
            company=company,
        )
