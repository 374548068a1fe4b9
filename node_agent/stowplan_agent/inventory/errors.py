"""The one exception of this room, so that a caller can show any of its refusals as it stands."""

from __future__ import annotations


class InventoryError(ValueError):
    """A checkpoint, source, shape, precision or limit that cannot be used.

    The message is one sentence: the thing, the limit with its units, and the way out.
    """
