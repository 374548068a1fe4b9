"""What a search leaves: the parts of the space with something as fast as the best there is."""

from __future__ import annotations

from dataclasses import dataclass

from stowplan_agent.planning.dual import Dual
from stowplan_agent.planning.labels import Labels
from stowplan_agent.planning.rows import Rows
from stowplan_agent.planning.table import Floats


@dataclass(frozen=True, slots=True)
class Leaf:
    """A part of the space: rows of each component that can be part of a best selection, at prices that say so."""

    pools: list[Rows]
    dual: Dual
    vector: Floats
    labels: Labels
    """Selections of these rows, among them all that can be best."""

    def spent(self) -> list[Floats]:
        """Reduced cost of the rows of each pool."""
        self.dual.vector = self.vector
        return self.dual.all_reduced(self.pools)
