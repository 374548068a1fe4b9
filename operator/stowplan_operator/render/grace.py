"""How long a pod may take to end: the agent is told what the merged template says, or it would be killed unfinished.

What a template does not say is not rendered: agent and Kubernetes have the same default, and a variable more would
restart every pod that runs.
"""

from __future__ import annotations

from stowplan_api.contract import GRACE_SECONDS, SERVER_CONTAINER
from stowplan_operator.kinds import Json


def with_grace(template: Json) -> Json:
    """The template whose server knows its ``terminationGracePeriodSeconds``; ``template`` is not changed.

    Whoever set the variable by hand has the last word. A period that is no number of seconds is the API server's to
    refuse.
    """
    grace = template["spec"].get("terminationGracePeriodSeconds")
    if not isinstance(grace, int) or grace < 1:
        return template
    containers = [
        _told(one, grace) if one["name"] == SERVER_CONTAINER else one for one in template["spec"]["containers"]
    ]
    return template | {"spec": template["spec"] | {"containers": containers}}


def _told(server: Json, grace: int) -> Json:
    variables: list[Json] = server.get("env") or []
    if any(variable["name"] == GRACE_SECONDS for variable in variables):
        return server
    return server | {"env": [*variables, {"name": GRACE_SECONDS, "value": str(grace)}]}
