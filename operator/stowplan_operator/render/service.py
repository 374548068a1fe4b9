"""The Service: it sends requests to validated pods only, because only those are Ready."""

from __future__ import annotations

from stowplan_api.contract import HTTP_PORT_NAME
from stowplan_api.diffusion_deployment import DiffusionDeploymentSpec
from stowplan_operator.kinds import SERVICE, Json
from stowplan_operator.render.naming import child, selector


def service(dd: Json, spec: DiffusionDeploymentSpec) -> Json:
    """A ClusterIP Service on the serving port."""
    manifest = child(SERVICE, dd)
    manifest["spec"] = {
        "type": "ClusterIP",
        "selector": selector(dd["metadata"]["name"]),
        "ports": [
            {
                "name": HTTP_PORT_NAME,
                "port": spec.serving.port,
                "protocol": "TCP",
                "appProtocol": "http",
                "targetPort": HTTP_PORT_NAME,
            }
        ],
    }
    return manifest
