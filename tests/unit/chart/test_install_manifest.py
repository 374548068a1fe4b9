"""charts/install.yaml: up to date, in an order that one `kubectl apply` can follow, and nothing of Helm's in it."""

from __future__ import annotations

from typing import Any

import yaml

from localcluster.chart import NAMESPACE, template
from localcluster.install_manifest import TARGET, main, text


def objects() -> list[dict[str, Any]]:
    return list(yaml.safe_load_all(TARGET.read_text(encoding="utf-8")))


def test_it_is_up_to_date(tmp_path: Any) -> None:
    assert TARGET.read_text(encoding="utf-8") == text(), "run `make manifests`"
    main(tmp_path / "install.yaml")
    assert (tmp_path / "install.yaml").read_text(encoding="utf-8") == text()


def test_it_holds_what_the_chart_installs() -> None:
    def substance(items: list[dict[str, Any]]) -> dict[tuple[str, str], dict[str, Any]]:
        found = {(item["kind"], item["metadata"]["name"]): dict(item) for item in items}
        return {name: {key: item[key] for key in item if key != "metadata"} for name, item in found.items()}

    namespace = {("Namespace", NAMESPACE): {"apiVersion": "v1", "kind": "Namespace"}}
    assert substance(objects()) == substance(template()) | namespace


def test_what_others_need_comes_first() -> None:
    kinds = [item["kind"] for item in objects()]
    assert kinds[:4] == ["Namespace", "CustomResourceDefinition", "CustomResourceDefinition", "ServiceAccount"]


def test_helm_is_not_mentioned() -> None:
    for item in objects():
        metadata = item["metadata"]
        words = {**(metadata.get("labels") or {}), **(metadata.get("annotations") or {})}
        assert not [word for pair in words.items() for word in pair if "helm" in word.lower()]
