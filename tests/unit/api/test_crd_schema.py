"""The CRDs are what the models say, in the subset of OpenAPI that the API server accepts."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Annotated, Any

import pytest
from pydantic import BaseModel, Field

from stowplan_api.crd import DIFFUSION_DEPLOYMENT, KINDS, RESIDENCY_PLACEMENT, Kind, definition, schema
from stowplan_api.markers import keyed_by, rules
from stowplan_api.quantity import Quantity
from stowplan_api.schema import SchemaError, spec_schema, status_schema


class Leaf(BaseModel):
    """A leaf, with ``code``
    over two lines.
    """

    name: str
    size: Quantity | None = None


class Tree(BaseModel):
    """A tree."""

    model_config = {"json_schema_extra": rules(("self.count > 0", "count something"))}

    leaves: Annotated[tuple[Leaf, ...], Field(max_length=4, json_schema_extra=keyed_by("name"))] = ()
    first: Leaf = Leaf(name="first")
    count: Annotated[int, Field(ge=0, le=(1 << 63) - 1)] = 7
    labels: dict[str, str] = Field(default_factory=dict)


def nodes(node: dict[str, Any], path: str = "") -> Iterator[tuple[str, dict[str, Any]]]:
    """Every schema inside a schema, with its path."""
    yield path, node
    for name, child in node.get("properties", {}).items():
        yield from nodes(child, f"{path}.{name}")
    for name in ("items", "additionalProperties"):
        if isinstance(node.get(name), dict):
            yield from nodes(node[name], f"{path}[]")


def test_a_model_becomes_a_structural_schema() -> None:
    result = spec_schema(Tree)
    leaf = result["properties"]["leaves"]["items"]
    assert leaf["description"] == "A leaf, with `code` over two lines."
    assert leaf["required"] == ["name"]
    assert leaf["properties"]["size"]["x-kubernetes-int-or-string"] is True
    assert result["properties"]["leaves"]["x-kubernetes-list-map-keys"] == ["name"]
    assert result["properties"]["first"]["default"] == {"name": "first"}
    assert result["properties"]["count"] == {"type": "integer", "minimum": 0, "format": "int64", "default": 7}
    assert result["properties"]["labels"] == {"type": "object", "additionalProperties": {"type": "string"}}
    assert result["x-kubernetes-validations"] == [{"rule": "self.count > 0", "message": "count something"}]


def test_a_status_has_no_defaults() -> None:
    assert [path for path, node in nodes(status_schema(Tree)) if "default" in node] == []


class Union(BaseModel):
    either: int | str


class Rate(BaseModel):
    rate: float


class Anything(BaseModel):
    anything: Any


class Loop(BaseModel):
    loop: Loop | None = None


@pytest.mark.parametrize(
    ("model", "message"),
    [
        (Union, "either is a union of 2 types"),
        (Rate, "rate is a float"),
        (Anything, "anything has no type"),
        (Loop, "contains itself"),
    ],
)
def test_what_cannot_be_structural_is_refused_when_generated(model: type[BaseModel], message: str) -> None:
    with pytest.raises(SchemaError, match=message):
        spec_schema(model)


@pytest.mark.parametrize("kind", KINDS, ids=lambda kind: kind.name)
def test_every_list_and_text_of_a_spec_is_bounded(kind: Kind) -> None:
    spec = schema(kind)["properties"]["spec"]
    unbounded = [
        path
        for path, node in nodes(spec)
        if (node.get("type") == "array" and "maxItems" not in node)
        or (node.get("type") == "string" and not {"maxLength", "enum"} & node.keys())
    ]
    assert unbounded == []


@pytest.mark.parametrize("kind", KINDS, ids=lambda kind: kind.name)
def test_every_field_of_a_spec_is_explained(kind: Kind) -> None:
    spec = schema(kind)["properties"]["spec"]
    pinned = ".residency.placement.components[]"
    silent = [path for path, node in nodes(spec) if "description" not in node and not path.endswith("[]")]
    assert [path for path in silent if not path.startswith(pinned)] == []


@pytest.mark.parametrize("kind", KINDS, ids=lambda kind: kind.name)
def test_every_column_names_a_field(kind: Kind) -> None:
    known = {path for path, _ in nodes(schema(kind))} | {".metadata.creationTimestamp"}
    for column in kind.columns:
        plain = column.path.replace("[0]", "[]").replace('[?(@.type=="Ready")]', "[]")
        assert plain.replace('[?(@.type=="Validated")]', "[]") in known, column.name


def test_names_columns_and_subresources() -> None:
    dd, rp = (definition(kind)["spec"] for kind in (DIFFUSION_DEPLOYMENT, RESIDENCY_PLACEMENT))
    assert (dd["names"]["shortNames"], rp["names"]["shortNames"]) == (["dd"], ["rp"])
    assert dd["names"]["categories"] == rp["names"]["categories"] == ["stowplan"]
    columns = {column["name"]: column.get("priority", 0) for column in dd["versions"][0]["additionalPrinterColumns"]}
    shown, wide = (
        ["Model", "Ready", "Validated", "Replicas", "Reason", "Age"],
        ["Device", "Peak", "Seconds", "Rollbacks"],
    )
    assert columns == dict.fromkeys(shown, 0) | dict.fromkeys(wide, 1)
    assert dd["versions"][0]["subresources"]["scale"]["labelSelectorPath"] == ".status.selector"
    assert rp["versions"][0]["subresources"] == {"status": {}}
