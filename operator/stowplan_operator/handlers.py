"""The kopf handlers: each notes what a watch said and puts a key into the queue. Nothing is decided here.

Only ``on.event``: create and update handlers would have kopf write annotations and finalizers to every object, and an
index would keep a second copy of large kinds.
"""

from __future__ import annotations

import dataclasses
import os
from collections.abc import Mapping
from typing import Any, cast

import kopf

from stowplan_operator.framework import pin
from stowplan_operator.kinds import WATCHED, Json, Kind
from stowplan_operator.program import Program


def registry(program: Program) -> kopf.OperatorRegistry:
    """The handlers of one program, in a registry of their own."""
    handlers = kopf.OperatorRegistry()

    @kopf.on.login(registry=handlers)
    def login(**kwargs: Any) -> kopf.ConnectionInfo | None:
        account = kopf.login_with_service_account(**kwargs)
        return by_address(account, os.environ) if account else kopf.login_with_kubeconfig(**kwargs)

    # What a start raises would be raised again: the process ends, and its container's restart is the retry.
    @kopf.on.startup(registry=handlers, errors=kopf.ErrorsMode.PERMANENT)
    async def start(settings: kopf.OperatorSettings, **_: Any) -> None:
        pin(settings)
        await program.start()

    @kopf.on.cleanup(registry=handlers)
    async def stop(**_: Any) -> None:
        await program.stop()

    @kopf.on.probe(registry=handlers, id="freshness")
    def fresh(**_: Any) -> str:
        complaint = program.complaint()
        if complaint:
            # Any other exception would be retried inside the probe, which then never answers.
            raise kopf.PermanentError(complaint)
        return "fresh"

    for kind in WATCHED:
        _watch(handlers, program, kind)
    return handlers


def by_address(account: kopf.ConnectionInfo, environ: Mapping[str, str]) -> kopf.ConnectionInfo:
    """The same account at the address that every pod is told: the name that kopf takes instead needs cluster DNS."""
    host, port = environ.get("KUBERNETES_SERVICE_HOST"), environ.get("KUBERNETES_SERVICE_PORT", "443")
    if not host:
        return account
    return dataclasses.replace(account, server=f"https://{f'[{host}]' if ':' in host else host}:{port}")


def _watch(handlers: kopf.OperatorRegistry, program: Program, kind: Kind) -> None:
    @kopf.on.event(kind.group, kind.version, kind.plural, registry=handlers, id=kind.plural)
    async def event(event: kopf.RawEvent, **_: Any) -> None:
        raw = cast("Json", event["object"])
        program.heard(kind, event["type"], raw)
        # kopf's view of an object refers to itself, so all of it would stay until the next full collection.
        for part in ("spec", "status"):
            raw.pop(part, None)
        raw["metadata"].pop("managedFields", None)
