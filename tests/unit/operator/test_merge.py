"""Laying one partial pod template over another."""

from __future__ import annotations

import copy
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from stowplan_operator.render.merge import MergeError, merge


@pytest.mark.parametrize(
    ("base", "patch", "merged"),
    [
        ({"a": 1}, {"b": 2}, {"a": 1, "b": 2}),
        ({"a": {"x": 1}}, {"a": {"y": 2}}, {"a": {"x": 1, "y": 2}}),
        ({"a": {"x": 1}, "b": 2}, {"a": None}, {"b": 2}),
        ({"command": ["a", "b"]}, {"command": ["c"]}, {"command": ["c"]}),
        ({"tolerations": [{"key": "a"}]}, {"tolerations": [{"key": "b"}]}, {"tolerations": [{"key": "b"}]}),
        (
            {"containers": [{"name": "server", "image": "a", "tty": True}]},
            {"containers": [{"name": "other", "image": "c"}, {"name": "server", "image": "b"}]},
            {"containers": [{"name": "server", "image": "b", "tty": True}, {"name": "other", "image": "c"}]},
        ),
        (
            {"env": [{"name": "A", "value": "1"}]},
            {"env": [{"name": "A", "valueFrom": {"fieldRef": {"fieldPath": "x"}}}]},
            {"env": [{"name": "A", "valueFrom": {"fieldRef": {"fieldPath": "x"}}}]},
        ),
        (
            {"volumes": [{"name": "s", "emptyDir": {}}]},
            {"volumes": [{"name": "s", "hostPath": {"path": "/p"}}]},
            {"volumes": [{"name": "s", "hostPath": {"path": "/p"}}]},
        ),
        (
            {"volumeMounts": [{"name": "s", "mountPath": "/a"}]},
            {"volumeMounts": [{"name": "s", "mountPath": "/b"}, {"name": "t", "mountPath": "/a"}]},
            {"volumeMounts": [{"name": "t", "mountPath": "/a"}, {"name": "s", "mountPath": "/b"}]},
        ),
        ({}, {"containers": [{"name": "x", "tty": None}]}, {"containers": [{"name": "x"}]}),
    ],
)
def test_table(base: dict[str, Any], patch: dict[str, Any], merged: dict[str, Any]) -> None:
    kept = copy.deepcopy((base, patch))
    assert merge(base, patch) == merged
    assert (base, patch) == kept


@pytest.mark.parametrize(
    ("patch", "message"),
    [
        ({"containers": "server"}, "podTemplate.containers must be a list of mappings, not str"),
        ({"containers": [{}]}, "podTemplate.containers[0] has no 'name'; podTemplate.containers is merged by it"),
        (
            {"containers": [{"name": {"a": "b"}}]},
            "podTemplate.containers[0].name must be text or a number, not dict",
        ),
        ({"metadata": 1}, "podTemplate.metadata must be a mapping, not int"),
        (
            {"containers": [{"name": "server", "env": {"A": "1"}}]},
            "podTemplate.containers[server].env must be a list of mappings, not dict",
        ),
    ],
)
def test_what_does_not_fit_is_named(patch: dict[str, Any], message: str) -> None:
    base = {"metadata": {}, "containers": [{"name": "server", "env": []}]}
    with pytest.raises(MergeError) as error:
        merge(base, patch)
    assert str(error.value) == message


LEAVES = st.integers() | st.text(max_size=3)
NAMED = st.lists(
    st.fixed_dictionaries({"name": st.sampled_from("abc")}, optional={"image": LEAVES}),
    max_size=3,
    unique_by=lambda e: e["name"],
)
TEMPLATES = st.fixed_dictionaries(
    {}, optional={"containers": NAMED, "spec": st.dictionaries(st.sampled_from("xy"), LEAVES)}
)


@given(TEMPLATES, TEMPLATES)
def test_laying_the_same_template_over_twice_changes_nothing(base: dict[str, Any], patch: dict[str, Any]) -> None:
    once = merge(base, patch)
    assert merge(once, patch) == once
    assert merge(base, {}) == base
