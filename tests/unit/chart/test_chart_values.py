"""The chart's values: each is explained, and a wrong one is refused with its name before anything is installed."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from itertools import pairwise
from typing import Any

import helm_python as helm
import pytest
import yaml

from localcluster.chart import CHART, template


def test_every_value_is_explained() -> None:
    text = (CHART / "values.yaml").read_text(encoding="utf-8")
    before, resources, after = text.partition("resources:\n")
    lines = (before + resources + after[after.index("\n\n") :]).splitlines()
    leaves = [(above, line) for above, line in pairwise(lines) if re.match(r" *\w+: *\S", line)]
    assert [line for above, line in leaves if not above.strip().startswith("#")] == []
    assert len(leaves) > 20


@pytest.mark.parametrize(
    ("values", "message"),
    [
        ({"imagee": {}}, "imagee"),
        ({"serviceMonitor": {"enable": True}}, "enable"),
        ({"podMonitor": {"interval": "often"}}, "interval"),
        ({"networkPolicy": {"serving": {"namespace": ["a"]}}}, "namespace"),
        ({"networkPolicy": {"apiServerPorts": [0]}}, "apiServerPorts"),
        ({"image": {"registry": "example"}}, "registry"),
        ({"crds": {"enabled": "yes"}}, "enabled"),
        ({"logLevel": "loud"}, "logLevel"),
        ({"resyncSeconds": 0}, "resyncSeconds"),
        ({"agent": {"podTemplate": {"specs": {}}}}, "specs"),
        ({"watchNamespaces": ["Red"]}, "watchNamespaces"),
        ({"image": {"pullPolicy": "Sometimes"}}, "pullPolicy"),
    ],
)
def test_a_wrong_value_is_refused(values: dict[str, Any], message: str) -> None:
    with pytest.raises(helm.HelmError, match=message):
        template(values)


def test_the_schema_allows_no_unknown_key_where_keys_are_known() -> None:
    schema = json.loads((CHART / "values.schema.json").read_text(encoding="utf-8"))

    def objects(node: dict[str, Any]) -> Iterator[dict[str, Any]]:
        yield node
        for child in node.get("properties", {}).values():
            yield from objects(child)

    assert all(node["additionalProperties"] is False for node in objects(schema) if "properties" in node)
    defaults = yaml.safe_load((CHART / "values.yaml").read_text(encoding="utf-8"))
    assert set(defaults) == set(schema["properties"]) - {"global"}
