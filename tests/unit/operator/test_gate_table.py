"""The gate's whole table: every combination of what may be wrong, through the operator's own decision.

Pod uid x boot x generation x validated x container restarted x operator up or down x status write lost x what the gate
said before. This is the gate alone: what closes a pod while no operator is up is /health, which is 503 until this boot
validated (`tests/unit/serving`); both together are explored in `test_gate_exploration`.
"""

from __future__ import annotations

import itertools
from dataclasses import dataclass

import pytest
from decisions import decided, running, written
from observations import deployment_of_user, placement, pod

from stowplan_api.contract import READINESS_GATE
from stowplan_operator.kinds import Json

DD = deployment_of_user()


@dataclass(frozen=True)
class Row:
    """One combination. Each of the first seven is harmless when true."""

    own_uid: bool
    this_boot: bool
    own_generation: bool
    validated: bool
    not_restarted: bool
    operator: bool
    written: bool
    """Whether the agent's last status reached the API server; if not, the one before it stands: not validated."""
    gate: str | None

    @property
    def truth(self) -> bool:
        """Whether the process that runs now has validated for this pod's generation. The probe says just that."""
        return self.this_boot and self.own_generation and self.validated and self.not_restarted

    @property
    def known(self) -> bool:
        """Whether the cluster can know it."""
        return self.truth and self.own_uid and self.written

    def objects(self) -> list[Json]:
        """What the operator finds."""
        started = 300.0 if self.not_restarted else 100.0
        server = {} if self.not_restarted else {"restartCount": 1}
        found = pod(DD, started=started, gate=self.gate, ready=False, server=server)
        report = placement(
            pod_uid="pod-uid" if self.own_uid else "earlier-uid",
            started=290 if self.this_boot else 310,
            validated_for=1 if self.own_generation else 2,
            validated="True" if self.validated and self.written else "False",
        )
        return [*running(DD, found), report]


ROWS = [Row(*row) for row in itertools.product(*[(True, False)] * 7, (None, "False", "True"))]


def gate_after(row: Row) -> str | None:
    objects = row.objects()
    if row.operator:
        decision = decided(*objects)
        objects = written(objects, decision)
        assert decided(*objects).gates == (), "nothing changed means nothing written"
    (found,) = [raw for raw in objects if raw["kind"] == "Pod"]
    conditions = {entry["type"]: entry["status"] for entry in found["status"]["conditions"]}
    return conditions.get(READINESS_GATE)


@pytest.mark.parametrize("gate", [None, "False", "True"])
@pytest.mark.parametrize("operator", [True, False])
def test_in_no_combination_is_the_gate_open_for_what_is_not_validated(operator: bool, gate: str | None) -> None:
    rows = [row for row in ROWS if row.operator is operator and row.gate == gate]
    assert len(rows) == 64
    for row in rows:
        after = gate_after(row)
        if operator:
            # Without any help from the probe: the gate is True only for what is validated, and then it is.
            assert (after == "True") is row.known, row
            assert row.truth or after != "True", row
        else:
            assert after == gate, "gates stand as they were"
