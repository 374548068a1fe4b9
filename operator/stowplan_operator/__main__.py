"""``python -m stowplan_operator``: run until asked to stop.

What would end the process at once is found out before kopf starts, so that it ends with a sentence and not a traceback.
"""

from __future__ import annotations

import asyncio
import logging
import os
import sys
from typing import Final

import kopf

from stowplan_operator.client import NoClusterError, connect
from stowplan_operator.framework import NothingRecalled
from stowplan_operator.handlers import registry
from stowplan_operator.program import Program
from stowplan_operator.settings import Settings, SettingsError, read

DEEPEST_JSON: Final = 12_000
"""An API server takes objects of 10,000 levels, and python's parser ends at 1,000: one podTemplate, of anybody who may
write one, would end every list that it is in."""


def main() -> int:
    """Exit status: 0 after an orderly stop, 2 for unusable settings or no cluster to connect to."""
    try:
        settings = read(os.environ)
        asyncio.run(_can_connect(settings))
    except (SettingsError, NoClusterError) as error:
        print(f"stowplan-operator: {error}", file=sys.stderr)
        return 2
    level = settings.log_level
    kopf.configure(debug=level == "debug", quiet=level in ("warning", "error"), log_format=kopf.LogFormat.JSON)
    for chatter in ("kopf.objects", "kopf.activities", "aiohttp.access"):
        # One line for each event of each watch says nothing that our own lines do not.
        logging.getLogger(chatter).setLevel(logging.DEBUG if level == "debug" else logging.WARNING)
    sys.setrecursionlimit(DEEPEST_JSON)
    program = Program(settings)
    kopf.run(
        registry=registry(program),
        memories=NothingRecalled(),
        standalone=True,
        clusterwide=not settings.namespaces,
        namespaces=settings.namespaces,
        liveness_endpoint=f"http://0.0.0.0:{settings.liveness_port}/healthz",
    )
    return 0


async def _can_connect(settings: Settings) -> None:
    client = await connect(settings.kubeconfig)
    await client.close()


if __name__ == "__main__":
    sys.exit(main())
