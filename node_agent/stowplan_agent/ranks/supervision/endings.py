"""How a rank ended, in one sentence: which rank, how, and what it was doing. Pure."""

from __future__ import annotations

import signal
from dataclasses import dataclass


@dataclass(frozen=True)
class Ending:
    """A rank's process is over. ``code`` is its exit code; below 0, the negative number of the signal that ended it."""

    rank: int
    code: int
    doing: str = ""
    """What it said last that it does."""
    out_of_memory: bool = False
    """Whether the kernel has killed something of this container for want of host memory meanwhile."""

    @property
    def clean(self) -> bool:
        """Whether it ended by itself and without an error."""
        return self.code == 0

    @property
    def exit_code(self) -> int:
        """As a shell would state it: 128 and the number of the signal, where a signal ended it."""
        return 128 - self.code if self.code < 0 else self.code

    def sentence(self) -> str:
        """Without a full stop, for a message to go on from."""
        if self.code < 0:
            how = f"was ended by {signal_name(-self.code)}"
            if self.out_of_memory and -self.code == signal.SIGKILL:
                how = (
                    "was killed by the kernel because the container has no host memory left (raise its limit, or plan "
                    "for fewer host copies)"
                )
        else:
            how = f"ended with exit code {self.code}"
        return f"rank {self.rank} {how} while it was {self.doing or 'doing nothing that it told of'}"


def signal_name(number: int) -> str:
    """``SIGKILL``, say; the number where it has no name."""
    try:
        return signal.Signals(number).name
    except ValueError:
        return f"signal {number}"
