"""Faults on purpose: parsed strictly, each fires once, at its own point."""

from __future__ import annotations

import pytest

from stowplan_agent.transaction import FaultError, Faults, InjectedFault
from stowplan_agent.transaction.faults import of_rank


@pytest.mark.parametrize("text", ["", " ", ",", " , ,"])
def test_no_faults(text: str) -> None:
    faults = Faults(text)
    assert not any(faults.fires(point) for point in ("apply.1", "validate.output", "rollback"))


@pytest.mark.parametrize("text", ["apply.2,validate.output", " apply.2 , validate.output ", "validate.output apply.2,"])
def test_each_fires_once_and_only_there(text: str) -> None:
    faults = Faults(text)
    faults.reach("apply.1")
    with pytest.raises(InjectedFault, match=r"fault apply\.2 was injected by STOWPLAN_FAULTS"):
        faults.reach("apply.2")
    faults.reach("apply.2")
    assert faults.fires("validate.output")
    assert not faults.fires("validate.output")


@pytest.mark.parametrize("text", ["apply", "apply.0", "apply.-1", "apply.12345", "validate", "Validate.output", "x"])
def test_an_unknown_point_is_refused_with_those_that_exist(text: str) -> None:
    with pytest.raises(FaultError) as caught:
        Faults(f"rollback,{text}")
    assert repr(text) in str(caught.value)
    for point in ("apply.N", "validate.output", "validate.seconds", "validate.memory", "validate.run", "rollback"):
        assert point in str(caught.value)


def test_operations_and_named_points_are_told_apart() -> None:
    faults = Faults("validate.output, apply:allocate.3,commit:unpin.1=kill")
    assert faults.points is not None
    assert [str(point) for point in faults.points.faults] == ["apply:allocate.3", "commit:unpin.1=kill"]
    assert faults.fires("validate.output")
    assert Faults("validate.output").points is None


@pytest.mark.parametrize("text", ["apply:launch.1", "apply:copy.0", "validate:free.2"])
def test_an_operation_that_does_not_exist_is_refused_as_well(text: str) -> None:
    with pytest.raises(FaultError, match=r"STAGE:KIND\.N"):
        Faults(text)


def test_points_of_one_rank_are_no_other_ranks() -> None:
    text = "rank1/apply.1, validate.run rank0/commit:unpin.1=kill"
    assert of_rank(text, 0) == "validate.run,commit:unpin.1=kill"
    assert of_rank(text, 1) == "apply.1,validate.run"
