"""The units of a component, each under a key that outlives it.

A rewrite of the component's modules may replace units; hooks and undo logs therefore speak of keys, never of units.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

from stowplan_agent.weights.unit import Unit

UnitKey = tuple[str, int] | None
"""Which unit of a component: a group's name and a layer's index, or None for the loose weights."""


class KeyedUnits:
    """One unit of loose weights, and one for each layer of each group."""

    def __init__(self, loose: Unit, groups: Mapping[str, Sequence[Unit]]) -> None:
        """The number of layers of a group never changes."""
        self.loose = loose
        self.groups = {group: list(units) for group, units in groups.items()}

    def items(self) -> Iterator[tuple[UnitKey, Unit]]:
        """All units by key, loose weights first."""
        yield None, self.loose
        for group, units in self.groups.items():
            for index, unit in enumerate(units):
                yield (group, index), unit

    def units(self) -> Iterator[Unit]:
        """All units, loose weights first."""
        return (unit for _, unit in self.items())

    def unit(self, key: UnitKey) -> Unit:
        """The present unit of a key. Raises LookupError for a key that there never was."""
        return self.loose if key is None else self.groups[key[0]][key[1]]

    def lengths(self) -> dict[str, int]:
        """The number of layers of each group."""
        return {group: len(units) for group, units in self.groups.items()}

    def total_bytes(self) -> int:
        """Packed bytes of all units."""
        return sum(unit.nbytes for unit in self.units())

    def replace(self, key: UnitKey, unit: Unit) -> None:
        """A unit takes another's part, wherever it is. Raises LookupError as `unit` does."""
        self.unit(key)
        if key is None:
            self.loose = unit
        else:
            self.groups[key[0]][key[1]] = unit
