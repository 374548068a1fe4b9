"""The few API calls that the operator makes, over kubernetes.aio, with errors as one exception that can be judged.

Raw JSON in and out: the operator compares what it wants with what is there, field by field, and generated model classes
would drop fields that a newer server has.
"""

from __future__ import annotations

import json
from collections.abc import AsyncIterator, Callable
from typing import Any, Final
from urllib.parse import urlsplit
from urllib.request import getproxies, proxy_bypass

import aiohttp
from kubernetes.aio import config
from kubernetes.aio.client import ApiClient, Configuration

from stowplan_operator.kinds import Json, Kind, kind_of
from stowplan_operator.metrics import installed_version

PAGE: Final = 50
"""Objects a page of a list: bounds the memory of one answer, of which a pod takes 60 KiB once it is parsed."""
CONNECTIONS: Final = 24
"""To the API server at once. Each holds a quarter of a MiB for what TLS has not taken apart yet."""
_TIMEOUT: Final = aiohttp.ClientTimeout(total=30, connect=10)
"""Seconds. A slow answer is retried by the queue, with a newer decision than the one that waited."""
_METADATA_LIST: Final = "application/json;as=PartialObjectMetadataList;g=meta.k8s.io;v=v1"
_APPLY: Final = "application/apply-patch+yaml"
_STRATEGIC: Final = "application/strategic-merge-patch+json"


class ApiError(Exception):
    """The API server's refusal, or no answer at all (status 0)."""

    def __init__(self, status: int, message: str, retry_after: float = 0.0) -> None:
        super().__init__(message)
        self.status = status
        self.message = message
        self.retry_after = retry_after
        """Seconds that the server asked to wait; 0 when it did not."""

    @property
    def transient(self) -> bool:
        """Whether the server was busy or away. A 500 is not: it is what a broken webhook and, from server-side apply,
        a field that no schema declares are answered with, and both stay until somebody reads the message.
        """
        return self.status in (0, 408, 429, 502, 503, 504)

    @property
    def gone(self) -> bool:
        """Whether the object or its namespace is no more (or about to be), or another has its name by now."""
        return (
            self.status == 404
            or (self.status == 403 and "is being terminated" in self.message)
            or (self.status == 422 and "metadata.uid" in self.message)
        )


class Client:
    """Speaks for the operator. ``count`` is called with verb and kind before each request, for the metrics."""

    def __init__(self, api: ApiClient, count: Callable[[str, str], None] = lambda verb, kind: None) -> None:
        self._api = api
        self._count = count

    async def pages(self, kind: Kind, namespace: str | None, labels: str) -> AsyncIterator[tuple[list[Json], int]]:
        """Lists a kind page by page; with each page, the resource version of the whole list."""
        accept = _METADATA_LIST if kind.metadata_only else "application/json"
        query = {"limit": str(PAGE), **({"labelSelector": labels} if labels else {})}
        while True:
            self._count("list", kind.kind)
            answer = await self._request("GET", kind.path(namespace), query, accept=accept)
            answer["items"] = answer["items"] or []  # A list of metadata alone is null when it is empty.
            for item in answer["items"]:
                item |= {"apiVersion": kind.api_version, "kind": kind.kind}
            yield answer["items"], int(answer["metadata"]["resourceVersion"])
            query["continue"] = answer["metadata"].get("continue") or ""
            if not query["continue"]:
                return

    async def schemas(self, group: str, version: str) -> Json:
        """The OpenAPI v3 schemas of a group's version by name, as discovery shows them to every account."""
        self._count("get", "OpenAPI")
        answer = await self._request("GET", f"/openapi/v3/apis/{group}/{version}", {})
        schemas: Json = (answer.get("components") or {}).get("schemas") or {}
        return schemas

    async def get(self, kind: Kind, namespace: str, name: str) -> Json | None:
        """One object, or None when there is none."""
        self._count("get", kind.kind)
        try:
            return await self._request("GET", kind.path(namespace, name), {})
        except ApiError as error:
            if error.status == 404:
                return None
            raise

    async def apply(self, manifest: Json, manager: str, subresource: str | None = None) -> Json:
        """Server-side apply, forced; a ``metadata.uid`` in the manifest is a precondition. Returns the object."""
        kind, metadata = kind_of(manifest), manifest["metadata"]
        self._count("apply", kind.kind)
        path = kind.path(metadata["namespace"], metadata["name"], subresource)
        return await self._request("PATCH", path, {"fieldManager": manager, "force": "true"}, manifest, _APPLY)

    async def create(self, manifest: Json, manager: str) -> Json:
        """Create an object that is written once."""
        kind = kind_of(manifest)
        self._count("create", kind.kind)
        path = kind.path(manifest["metadata"]["namespace"])
        return await self._request("POST", path, {"fieldManager": manager}, manifest)

    async def patch_status(self, kind: Kind, namespace: str, name: str, body: Json, manager: str) -> Json:
        """Strategic merge patch of a built-in kind's status."""
        self._count("patch", kind.kind)
        path = kind.path(namespace, name, "status")
        return await self._request("PATCH", path, {"fieldManager": manager}, body, _STRATEGIC)

    async def close(self) -> None:
        """Close the connections."""
        await self._api.close()

    async def _request(
        self,
        method: str,
        path: str,
        query: dict[str, str],
        body: Json | None = None,
        content_type: str = "application/json",
        accept: str = "application/json",
    ) -> Json:
        headers = {"Accept": accept, "Content-Type": content_type}
        try:
            request = await self._api.param_serialize(
                method,
                path,
                query_params=list(query.items()),
                header_params=headers,
                body=body,
                auth_settings=["BearerToken"],
            )
            answer = await self._api.call_api(*request, _request_timeout=_TIMEOUT)
            data: bytes = await answer.read()
        except (TimeoutError, aiohttp.ClientError, OSError) as error:
            raise ApiError(
                0, f"{method} {path}: no answer from the API server ({error or type(error).__name__})"
            ) from None
        if 200 <= answer.status <= 299:
            try:
                result: Json = json.loads(data)
            except ValueError:
                raise ApiError(0, f"{method} {path}: the answer of the API server was cut short") from None
            return result
        raise _refused(answer.status, data, answer.getheader("Retry-After"))


class NoClusterError(RuntimeError):
    """There is nothing to connect with. The message says what to set."""


async def connect(kubeconfig: str = "", count: Callable[[str, str], None] = lambda verb, kind: None) -> Client:
    """A client from the pod's own service account, or else from a kubeconfig. Raises `NoClusterError`."""
    configuration = Configuration()
    try:
        config.load_incluster_config(client_configuration=configuration)
    except config.ConfigException:
        try:
            await config.load_kube_config(config_file=kubeconfig or None, client_configuration=configuration)
        except config.ConfigException as error:
            raise NoClusterError(
                f"no cluster to connect to: this is no pod, and the kubeconfig is unusable ({error}); set KUBECONFIG"
            ) from None
    # Looked up once: aiohttp would ask the environment and a .netrc before each request, in two threads.
    configuration.proxy = configuration.proxy or environments_proxy(configuration.host)
    configuration.client_session_kwargs = {"trust_env": False}
    configuration.connection_pool_maxsize = CONNECTIONS
    api = ApiClient(configuration)
    api.user_agent = f"stowplan-operator/{installed_version()}"
    return Client(api, count)


def environments_proxy(server: str) -> str | None:
    """The proxy that HTTPS_PROXY and NO_PROXY name for a URL; None for none."""
    url = urlsplit(server)
    if not url.hostname or proxy_bypass(url.hostname):
        return None
    return getproxies().get(url.scheme)


def _refused(status: int, data: bytes, retry_after: str | None) -> ApiError:
    try:
        answer: Any = json.loads(data)
        message = answer["message"]
    except (ValueError, TypeError, KeyError):
        message = data.decode(errors="replace")[:256]
    seconds = float(retry_after) if retry_after and retry_after.isdecimal() else 0.0
    return ApiError(status, f"{message}", seconds)
