"""What came of carrying a decision out, as the worker must know it: what to try again, and when."""

from __future__ import annotations

from dataclasses import dataclass, field
from datetime import datetime

from stowplan_operator.allowance import Allowance


@dataclass
class Outcome:
    """What came of one decision."""

    writes: int = 0
    refusals: list[str] = field(default_factory=list)
    """The API server's answers to children that it will not have, one sentence each."""
    retry: bool = False
    """Something may succeed later by itself."""
    retry_after: float = 0.0
    wait: float = 0.0
    """Seconds until something that may not be written so often may be; 0 when nothing waits."""

    def waits(self, allowance: Allowance, name: str, now: datetime) -> bool:
        """Whether a write has to wait; if so, that is noted."""
        seconds = allowance.wait(name, now)
        if seconds > 0:
            self.wait = min(self.wait, seconds) if self.wait else seconds
        return seconds > 0
