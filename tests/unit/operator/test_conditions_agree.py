"""K19: whatever is observed, the conditions of one status agree with each other and with its numbers."""

from __future__ import annotations

from generated import observations
from hypothesis import given, settings
from hypothesis import strategies as st
from observations import NOW, SETTINGS, snapshot

from stowplan_operator.decide import decide
from stowplan_operator.kinds import Json


@settings(max_examples=400, deadline=None)
@given(observations(), st.sampled_from([(), ("Service wan was refused: quota",)]))
def test_k19_conditions_and_numbers_agree(objects: list[Json], refusals: tuple[str, ...]) -> None:
    decision = decide(snapshot(*objects), NOW, SETTINGS, refusals)
    assert decision.status is not None
    status: Json = decision.status["status"]
    found = {entry["type"]: entry for entry in status["conditions"]}
    true = {type_ for type_, entry in found.items() if entry["status"] == "True"}
    desired = objects[0]["spec"]["replicas"]

    if "Ready" in true:
        assert status["readyReplicas"] == status["validatedReplicas"] == status["updatedReplicas"] == desired
        assert status["replicas"] == desired
        assert true & {"Progressing", "Stalled", "Reconciling"} == set()
        assert ("Available" in true) == (desired > 0)
        for word in ("waiting", "no pod yet", "phase", "crash"):
            assert word not in found["Ready"]["message"].lower()
    assert not {"Stalled", "Reconciling"} <= true
    assert all(found[type_]["status"] == "True" for type_ in ("Stalled", "Reconciling") if type_ in found)
    assert ("Available" in true) == (status["readyReplicas"] > 0)
    assert status["readyReplicas"] <= status["validatedReplicas"] <= status["replicas"]
    if "Stalled" in true:
        assert found["Stalled"]["reason"] == found["Ready"]["reason"] == found["Progressing"]["reason"]
        assert found["Stalled"]["message"] == found["Ready"]["message"]
    if "PlacementValidated" in true:
        assert status["validatedReplicas"] >= desired > 0
    assert all(entry["observedGeneration"] == 1 for entry in found.values())


@settings(max_examples=200, deadline=None)
@given(observations())
def test_deciding_again_on_what_was_written_writes_no_status(objects: list[Json]) -> None:
    decision = decide(snapshot(*objects), NOW, SETTINGS)
    assert decision.status is not None
    objects[0]["status"] = decision.status["status"]
    again = decide(snapshot(*objects), NOW, SETTINGS)
    assert again.status is None
    assert again.events == ()
