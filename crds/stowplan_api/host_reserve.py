"""Host memory that plans leave free: the rule that the agent plans by, and the operator sizes pods by."""

from __future__ import annotations

from typing import Final

SHARE: Final = 20
LEAST: Final = 256 << 20
"""Left to the process: a twentieth of the limit or 256 MiB, whichever is more, unless the spec says."""


def host_reserve(limit_bytes: int, stated: int | None = None) -> int:
    """Bytes of host memory that plans leave free under a limit: what the spec states, or the default."""
    return stated if stated is not None else max(limit_bytes // SHARE, LEAST)
