"""Every verb on every kind, tried with a token: the requests themselves, over one connection, each a dry run.

The API server authorizes a request before it looks at its object or its body, so 403 is what "may not" looks like
whatever else is wrong with a request, and any other answer means that it was let in.
"""

from __future__ import annotations

import base64
import http.client
import json
import ssl
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any
from urllib.parse import urlsplit

from localcluster.client import Cluster

COLLECTION = {"list": "GET", "watch": "GET", "create": "POST", "deletecollection": "DELETE"}
OBJECT = {"get": "GET", "update": "PUT", "patch": "PATCH", "delete": "DELETE"}
SUBRESOURCE = {**OBJECT, "create": "POST"}
APPLY = "application/merge-patch+json"


@dataclass(frozen=True)
class Resource:
    """One resource or subresource of the API, as discovery names it."""

    group_version: str
    name: str
    namespaced: bool

    @property
    def group(self) -> str:
        return self.group_version.rpartition("/")[0]

    def path(self, namespace: str, name: str | None = None) -> str:
        """The URL path of the collection, or of an object and its subresource."""
        resource, _, subresource = self.name.partition("/")
        root = f"/apis/{self.group_version}" if self.group else f"/api/{self.group_version}"
        scope = f"/namespaces/{namespace}" if self.namespaced else ""
        return "/".join(part for part in (f"{root}{scope}/{resource}", name, subresource) if part)


@dataclass(frozen=True)
class Attempt:
    """A verb on a resource; ``group``, ``resource`` and ``verb`` are what a Role would name."""

    resource: Resource
    verb: str

    @property
    def right(self) -> tuple[str, str, str]:
        return self.resource.group, self.resource.name, self.verb


def discovered(cluster: Cluster) -> list[Resource]:
    """Everything that the API server serves, in all versions."""
    groups = json.loads(cluster.kubectl("get", "--raw", "/apis"))["groups"]
    versions = ["v1", *(version["groupVersion"] for group in groups for version in group["versions"])]
    found = []
    for version in versions:
        answer = cluster.kubectl("get", "--raw", f"/apis/{version}" if "/" in version else f"/api/{version}")
        found += [Resource(version, entry["name"], entry["namespaced"]) for entry in json.loads(answer)["resources"]]
    return found


def attempts(resources: list[Resource]) -> Iterator[Attempt]:
    """Each verb that RBAC knows for HTTP on each resource."""
    for resource in resources:
        for verb in SUBRESOURCE if "/" in resource.name else (*COLLECTION, *OBJECT):
            yield Attempt(resource, verb)


class Bearer:
    """Speaks to the API server with one token."""

    def __init__(self, cluster: Cluster, token: str) -> None:
        config = cluster.json("config", "view", "--raw", "--minify", "--flatten")["clusters"][0]["cluster"]
        authority = base64.b64decode(config["certificate-authority-data"]).decode()
        address = urlsplit(config["server"])
        context = ssl.create_default_context(cadata=authority)
        self._connection = http.client.HTTPSConnection(str(address.hostname), address.port, timeout=30, context=context)
        self._headers = {"Authorization": f"Bearer {token}", "Content-Type": "application/json"}

    def send(
        self, method: str, path: str, body: object = None, content: str = "application/json", **headers: str
    ) -> tuple[int, Any]:
        """Status and answer of one request."""
        sent = self._headers | {"Content-Type": content} | {name.replace("_", "-"): to for name, to in headers.items()}
        self._connection.request(method, path, None if body is None else json.dumps(body), sent)
        answer = self._connection.getresponse()
        data = answer.read()
        try:
            return answer.status, json.loads(data)
        except ValueError:
            return answer.status, data.decode(errors="replace")

    def may(self, attempt: Attempt, namespace: str, name: str) -> bool:
        """Whether the server lets this in; nothing is ever changed."""
        if (method := COLLECTION.get(attempt.verb)) and "/" not in attempt.resource.name:
            path = attempt.resource.path(namespace)
        else:
            method, path = SUBRESOURCE[attempt.verb], attempt.resource.path(namespace, name)
        query = (
            "watch=1&timeoutSeconds=1" if attempt.verb == "watch" else "dryRun=All" if method != "GET" else "limit=1"
        )
        status, _ = self.send(method, f"{path}?{query}", {} if method in ("POST", "PUT", "PATCH") else None, APPLY)
        return status not in (401, 403)
