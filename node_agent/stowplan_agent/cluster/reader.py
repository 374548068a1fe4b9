"""What a person's kubeconfig may read of a namespace: DiffusionDeployments, ResidencyPlacements and their pods.

The other side of `client`, which speaks for one pod. Lists are taken whole, and nothing is ever written.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Final, TypeVar

import urllib3
from kubernetes.client import ApiClient, ApiException, Configuration, CoreV1Api, CustomObjectsApi
from kubernetes.config import ConfigException, load_kube_config
from kubernetes.config.kube_config import list_kube_config_contexts

from stowplan_agent.cluster.client import ApiServerError, in_cluster, said_by
from stowplan_api.contract import LABEL_DEPLOYMENT
from stowplan_api.model import GROUP, VERSION

_TIMEOUT: Final = (3.05, 20.0)
"""Seconds to connect, and between two reads."""
_LONGEST: Final = 200
"""Characters of somebody else's error in a sentence."""
_Answer = TypeVar("_Answer")


@dataclass(frozen=True)
class Lists:
    """The objects of one moment, as JSON; about one moment, for they are three requests."""

    deployments: tuple[dict[str, Any], ...]
    placements: tuple[dict[str, Any], ...]
    pods: tuple[dict[str, Any], ...]


class ClusterReader:
    """Reads one namespace, or all of them where ``namespace`` is None."""

    def __init__(self, configuration: Configuration, namespace: str | None) -> None:
        configuration.retries = False
        self._client = ApiClient(configuration)
        self._namespace = namespace

    def read(self) -> Lists:
        """Everything. Raises ApiServerError with a sentence that says what was refused, or who did not answer."""
        return Lists(
            self._custom("diffusiondeployments"),
            self._custom("residencyplacements"),
            _items("pods", self._call("pods", self._pods)),
        )

    def _custom(self, plural: str) -> tuple[dict[str, Any], ...]:
        api, kind = CustomObjectsApi(self._client), {"group": GROUP, "version": VERSION, "plural": plural}
        if self._namespace is None:
            found = self._call(plural, lambda: api.list_cluster_custom_object(_request_timeout=_TIMEOUT, **kind))
        else:
            where = {"namespace": self._namespace, **kind}
            found = self._call(plural, lambda: api.list_namespaced_custom_object(_request_timeout=_TIMEOUT, **where))
        return _items(plural, found)

    def _pods(self) -> Any:
        """As JSON: the client's own models refuse what a later Kubernetes, or a half-written object, has otherwise."""
        api = CoreV1Api(self._client)
        how = {"label_selector": LABEL_DEPLOYMENT, "_request_timeout": _TIMEOUT, "_preload_content": False}
        if self._namespace is None:
            answer = api.list_pod_for_all_namespaces(**how)
        else:
            answer = api.list_namespaced_pod(self._namespace, **how)
        if answer.status >= 400:
            raise ApiException(status=answer.status, reason=answer.reason, body=answer.data.decode(errors="replace"))
        try:
            return json.loads(answer.data)
        except ValueError:
            return None

    def _call(self, what: str, call: Callable[[], _Answer]) -> _Answer:
        try:
            return call()
        except ApiException as error:
            raise ApiServerError(_refused(what, self._namespace, error), int(error.status or 0)) from None
        except (urllib3.exceptions.HTTPError, OSError) as error:
            raise ApiServerError(f"the API server cannot be reached ({type(error).__name__}: {error})") from None


def open_cluster(kubeconfig: str | None, context: str | None) -> tuple[Configuration, str]:
    """How to reach the cluster of a kubeconfig, else that of the pod that this runs in; and the namespace it names.

    Raises ApiServerError.
    """
    configuration = Configuration()
    try:
        load_kube_config(config_file=kubeconfig, context=context, client_configuration=configuration)
        every, current = list_kube_config_contexts(config_file=kubeconfig)
        if context is not None:
            current = next(one for one in every if one["name"] == context)
        return configuration, str(current["context"].get("namespace") or "default")
    except ConfigException as error:
        if kubeconfig is not None or context is not None:
            raise ApiServerError(f"the kubeconfig cannot be used ({error})") from None
        try:
            return in_cluster(), "default"
        except ApiServerError:
            raise ApiServerError(f"there is no cluster to ask ({error}); set KUBECONFIG or give --kubeconfig") from None
    except Exception as error:  # of the client, which looks at no file before it takes it for a kubeconfig
        why = " ".join(f"{type(error).__name__}: {error}".split())[:_LONGEST]
        raise ApiServerError(
            f"the kubeconfig cannot be read ({why}); kubectl config view shows what there is"
        ) from None


def _items(what: str, answer: Any) -> tuple[dict[str, Any], ...]:
    """The objects of a list. Raises ApiServerError where the answer is none, as of a proxy that asks for a password."""
    items = answer.get("items") if isinstance(answer, dict) else None
    if not isinstance(items, list):
        raise ApiServerError(f"what answers for {what} is no API server of Kubernetes; look at the kubeconfig's server")
    return tuple(one for one in items if isinstance(one, dict))


def _refused(what: str, namespace: str | None, error: ApiException) -> str:
    where = "in all namespaces" if namespace is None else f"in namespace {namespace}"
    if error.status == 404:
        return f"this cluster has no {what}; install the chart, or charts/install.yaml, first"
    if error.status in (401, 403):
        return (
            f"you may not list {what} {where} ({said_by(error)}); the chart's aggregate roles give view what it takes"
        )
    return f"the API server answered {error.status} for {what} {where} ({said_by(error)})"
