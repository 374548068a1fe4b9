"""The two calls the agent makes: get its ResidencyPlacement, and apply the status of it.

Every way they fail becomes one `ApiServerError` with a sentence: what retries them needs to know nothing of HTTP. The
Kubernetes client is told not to retry by itself: one place backs off, and it can be read.
"""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, Final, TypeVar

import urllib3
from kubernetes.client import ApiClient, ApiException, Configuration, CustomObjectsApi
from kubernetes.config import ConfigException
from kubernetes.config.incluster_config import InClusterConfigLoader

from stowplan_api.contract import Manager
from stowplan_api.model import API_VERSION, GROUP, VERSION

_SERVICE_ACCOUNT: Final = Path("/var/run/secrets/kubernetes.io/serviceaccount")
_TIMEOUT: Final = (3.05, 10.0)
"""Seconds to connect, and between two reads."""
_ADDRESS: Final = {"group": GROUP, "version": VERSION, "plural": "residencyplacements"}
_Answer = TypeVar("_Answer")


class ApiServerError(Exception):
    """A call that failed; the message is one sentence. ``status`` is None when no answer came."""

    def __init__(self, message: str, status: int | None = None, retry_after: float | None = None) -> None:
        super().__init__(message)
        self.status = status
        self.retry_after = retry_after
        """Seconds that the API server asked to wait."""


class PlacementClient:
    """Reads and writes one ResidencyPlacement."""

    def __init__(self, configuration: Configuration, namespace: str, name: str) -> None:
        configuration.retries = False
        self._client = ApiClient(configuration)
        self._api = CustomObjectsApi(self._client)
        self._namespace = namespace
        self._name = name

    @property
    def name(self) -> str:
        """Namespace and name, as messages show them."""
        return f"{self._namespace}/{self._name}"

    def get(self) -> dict[str, Any]:
        """The object as JSON. Raises ApiServerError."""
        return self._call(
            lambda: self._api.get_namespaced_custom_object(
                namespace=self._namespace, name=self._name, _request_timeout=_TIMEOUT, **_ADDRESS
            )
        )

    def apply_status(self, uid: str, status: Mapping[str, Any]) -> None:
        """Make the status exactly this (server-side apply, forced). Raises ApiServerError, also for another uid."""
        body = {
            "apiVersion": API_VERSION,
            "kind": "ResidencyPlacement",
            "metadata": {"name": self._name, "namespace": self._namespace, "uid": uid},
            "status": status,
        }
        self._call(
            lambda: self._api.patch_namespaced_custom_object_status(
                namespace=self._namespace,
                name=self._name,
                body=body,
                field_manager=str(Manager.AGENT),
                force=True,
                _content_type="application/apply-patch+yaml",
                _request_timeout=_TIMEOUT,
                **_ADDRESS,
            )
        )

    def close(self) -> None:
        """Close the connections."""
        self._client.close()

    def _call(self, call: Callable[[], _Answer]) -> _Answer:
        try:
            return call()
        except ApiException as error:
            raise self._problem(error) from None
        except (urllib3.exceptions.HTTPError, OSError, ConfigException) as error:
            raise ApiServerError(f"the API server cannot be reached ({type(error).__name__}: {error})") from None

    def _problem(self, error: ApiException) -> ApiServerError:
        status, said = int(error.status or 0), said_by(error)
        if status == 404:
            text = f"ResidencyPlacement {self.name} does not exist; the operator creates it when it sees the pod"
        elif status == 403:
            text = (
                f"the API server refuses ResidencyPlacement {self.name} to this pod ({said}); its ServiceAccount needs "
                f"get on residencyplacements and get and patch on residencyplacements/status"
            )
        else:
            text = f"the API server answered {status} for ResidencyPlacement {self.name} ({said})"
        return ApiServerError(text, status, _retry_after(error))


def in_cluster(environ: Mapping[str, str] = os.environ, service_account: Path = _SERVICE_ACCOUNT) -> Configuration:
    """How to reach the API server from inside a pod. Raises ApiServerError outside one.

    Proxy variables are not followed: they are for the model's download, and the API server is inside the cluster.
    """
    configuration = Configuration()
    loader = InClusterConfigLoader(str(service_account / "token"), str(service_account / "ca.crt"), environ=environ)
    try:
        loader.load_and_set(configuration)
    except (ConfigException, OSError) as error:
        raise ApiServerError(f"this process cannot reach a Kubernetes API server from inside a pod ({error})") from None
    configuration.proxy = None
    return configuration


def said_by(error: ApiException) -> str:
    """The message of the metav1.Status in the answer, or the HTTP reason."""
    try:
        return str(json.loads(error.body)["message"])
    except (TypeError, ValueError, KeyError):
        return str(error.reason)


def _retry_after(error: ApiException) -> float | None:
    value = (error.headers or {}).get("Retry-After")
    return float(value) if value and value.isdecimal() else None
