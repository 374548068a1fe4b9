"""Faults on purpose: parsed strictly, each fires once, at its own point."""

from __future__ import annotations

import pytest

from stowplan_agent.transaction import FaultError, Faults, InjectedFault


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
