"""Who the pods are, and the one right they get: to report on their own ResidencyPlacement.

The role itself is the chart's ClusterRole, bound here in the pods' namespace only, so that the operator needs no right
to write roles. Which ResidencyPlacement a pod may write is held by the chart's ValidatingAdmissionPolicy.
"""

from __future__ import annotations

from stowplan_api.contract import agent_account
from stowplan_operator.kinds import ROLE_BINDING, SERVICE_ACCOUNT, Json
from stowplan_operator.render.naming import child
from stowplan_operator.settings import Settings


def service_account(dd: Json) -> Json:
    """The ServiceAccount of the pods."""
    return child(SERVICE_ACCOUNT, dd, agent_account(dd["metadata"]["name"]))


def role_binding(dd: Json, settings: Settings, account: str) -> Json:
    """Binds the agent's ClusterRole to ``account``: ours, or the one that a podTemplate names instead."""
    manifest = child(ROLE_BINDING, dd, agent_account(dd["metadata"]["name"]))
    manifest["roleRef"] = {"apiGroup": ROLE_BINDING.group, "kind": "ClusterRole", "name": settings.agent_role}
    manifest["subjects"] = [
        {"kind": SERVICE_ACCOUNT.kind, "name": account, "namespace": dd["metadata"]["namespace"]},
    ]
    return manifest
