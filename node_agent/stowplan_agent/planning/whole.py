"""The entries of a component that do not split it into layers: Resident, Offload, and the current one."""

from __future__ import annotations

from functools import cached_property
from typing import Final

import numpy as np

from stowplan_agent.planning.elastic import Curve
from stowplan_agent.planning.frame import Frame
from stowplan_agent.planning.layout import Layout
from stowplan_agent.planning.rows import CURRENT, ELASTIC, HOST, LOCKED, OFFLOAD, OWN, RESIDENT, Rows, joined
from stowplan_agent.planning.table import Floats, Ints
from stowplan_agent.planning.visits import Visits
from stowplan_api.model import ContractError
from stowplan_api.placement import ComponentPlacement

GRID: Final = 256
"""Steps of pinned bytes where ranks of different links are on nodes of different kinds."""


class WholeEntries:
    """The rows of one component that need no table of shapes."""

    def __init__(self, visits: Visits, frame: Frame) -> None:
        self.visits, self.frame = visits, frame
        self.component = visits.component
        self.fixed = self.component.fixed.mode if self.component.fixed else None
        if self.fixed == "Layerwise" and not self.component.groups:
            raise ContractError(
                f"component {self.component.name} is fixed to Layerwise but has no repeated layers; "
                "fix it to Resident or Offload"
            )
        self.curve = Curve(self.component.total_bytes(), visits.links, frame.ranks_of[0], visits.loads)
        self.prices: Floats = np.zeros(1)
        """What a locked byte may cost, falling to 0; set by `spaces_of` for all components together."""
        self.listed = 0
        """Rows that were bounded or priced."""
        self.current: ComponentPlacement | None = None
        self.left_out: set[str] = set()
        self.open_loads = False
        """Whether ``prices`` are enough for open pins if the component is prefetched; set with them."""

    def whole(self) -> Rows:
        """The rows without layers: Resident, Offload, and the current entry unless it prefetches."""
        return self._whole

    @cached_property
    def _whole(self) -> Rows:
        resident = self._entry_row(ComponentPlacement(name=self.component.name, mode="Resident"), RESIDENT)
        parts = [resident if self.fixed in (None, "Resident") else resident.take(np.zeros(0, dtype=np.int64))]
        if self.fixed in (None, "Offload"):
            parts.append(self._offload())
        if self.current is not None and not self.current.prefetch:
            parts.append(self.current_row(self.current))
        return joined(parts)

    def resident_seconds(self) -> float:
        """Seconds of a Resident, allowed or not."""
        return self.visits.seconds(self.visits.layout(None))

    def host_bytes(self, layout: Layout) -> float:
        """Bytes of one host copy under a layout: that of each rank, or with peers that of all."""
        copies = float(self.frame.ranks_of[0].sum())
        return sum(layout.host[rank] for rank in self.frame.ranks[0]) / copies

    def standing(self) -> Rows:
        """The row of the current entry, before it moves: it takes forever where it cannot stay."""
        rows = self.whole()
        rows = rows.take(rows.shape == CURRENT)
        if len(rows) or self.current is None:
            return rows
        row = self.current_row(self.current)
        row.times[:] = np.inf
        return row

    def current_row(self, current: ComponentPlacement) -> Rows:
        """The row of the current entry, as if nothing were prefetched."""
        return self._entry_row(current, CURRENT)

    def offload(self, pinned: tuple[int, ...], *, prefetch: bool = False) -> ComponentPlacement:
        """The Offload entry with so many bytes pinned on each rank."""
        return ComponentPlacement(name=self.component.name, mode="Offload", prefetch=prefetch, pinned_bytes=pinned)

    def gridded(self, rows: Rows, *, proves: bool = True) -> Rows:
        """The rows with an elastic one replaced by a few hundred choices of its pins; ``proves`` says that others are
        then left out of a proof."""
        if not bool((rows.shape == ELASTIC).any()):
            return rows
        if proves:
            self.left_out.add(f"{self.component.name} is pinned in {GRID}ths, for it must be reached by moves")
        return joined([rows.take(rows.shape != ELASTIC), self._grid()])

    def _grid(self) -> Rows:
        """Offload with so many choices of pins."""
        total = self.component.total_bytes()
        run = self.resident_seconds()
        parts = []
        for step in range(GRID + 1):
            pins = np.array(self.curve.pins(self.curve.most * step / GRID), dtype=np.int64)
            held = np.zeros((1, LOCKED + len(self.frame.pinnable)))
            held[0, OWN] = held[0, HOST] = total
            held[0, LOCKED:] = self.frame.ranks_of @ pins
            loads = self.visits.loads * max(
                link.load_seconds(bytes_, total - bytes_)
                for bytes_, link in zip(pins.tolist(), self.visits.links, strict=True)
            )
            parts.append(self._single(held, run + loads, OFFLOAD, pins))
        return joined(parts)

    def _entry_row(self, entry: ComponentPlacement, kind: int) -> Rows:
        layout = self.visits.layout(entry)
        locked = [sum(layout.locked[rank] for rank in ranks) for ranks in self.frame.ranks]
        held = np.array([[layout.always, layout.own, self.host_bytes(layout), *locked]], dtype=np.float64)
        return self._single(held, self.visits.seconds(layout), kind, np.zeros(len(self.visits.links), dtype=np.int64))

    def _offload(self) -> Rows:
        """One row with open pins; a few hundred where the nodes differ and pins are scarce."""
        total, links = self.component.total_bytes(), len(self.visits.links)
        run = self.resident_seconds()
        nothing = np.zeros(links, dtype=np.int64)
        held = np.zeros((1, LOCKED + len(self.frame.pinnable)))
        held[0, OWN] = held[0, HOST] = total
        if not self.visits.loads:
            return self._single(held, run, OFFLOAD, nothing)
        if self.frame.nodes_alike:
            row = self._single(held, run, ELASTIC, nothing)
            row.times[0] = [run + self.curve.at_price(price) for price in self.prices]
            return row
        self.left_out.add(f"{self.component.name} is pinned in {GRID}ths, for its nodes have ranks of other links")
        return self._grid()

    def _single(self, held: Floats, seconds: float, kind: int, pins: Ints) -> Rows:
        self.listed += 1
        groups = max(len(self.component.groups), 1)
        return Rows(
            held,
            np.full((1, len(self.prices)), seconds),
            np.array([kind]),
            np.repeat(pins[None, None, :], groups, axis=1),
            np.ones(1, dtype=np.bool_),
            np.zeros(1, dtype=np.bool_),
        )
