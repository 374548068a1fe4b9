"""What kopf is told: to write nothing, to bound its watches, and never to end the process for a server that is away."""

from __future__ import annotations

import asyncio

import kopf
from observations import KEY, SETTINGS, deployment_of_user, pod

from stowplan_operator.framework import (
    PATIENCE_SECONDS,
    WATCH_CLIENT_SECONDS,
    WATCH_SERVER_SECONDS,
    NothingRecalled,
    pin,
)
from stowplan_operator.handlers import registry
from stowplan_operator.kinds import SELECTED_BY_LABEL, WATCHED
from stowplan_operator.program import Program


def configured() -> kopf.OperatorSettings:
    settings = kopf.OperatorSettings()
    pin(settings)
    return settings


def test_kopf_posts_nothing_and_looks_for_no_other_kinds() -> None:
    settings = configured()
    assert not settings.posting.enabled
    assert settings.scanning.disabled


def test_kopf_lists_in_pages_and_copies_no_object_to_compare_it() -> None:
    settings = configured()
    assert settings.watching.chunk_size is not None
    assert 0 < settings.watching.chunk_size <= 500
    body = kopf.Body({"metadata": {"name": "pod"}, "spec": {"much": ["more"] * 1000}})
    compared = settings.persistence.diffbase_storage
    assert (compared.build(body=body), compared.fetch(body=body)) == ({}, None)


def test_kopf_remembers_nothing_of_an_object() -> None:
    memories = NothingRecalled()
    raw: kopf.RawBody = {"metadata": {"uid": "uid-1"}}
    asyncio.run(memories.recall(raw, noticed_by_listing=True))
    assert list(memories.iter_all_memories()) == []


def test_k14_a_watch_that_is_open_and_silent_ends_by_itself() -> None:
    settings = configured()
    assert settings.watching.server_timeout == WATCH_SERVER_SECONDS < WATCH_CLIENT_SECONDS
    assert settings.watching.client_timeout == WATCH_CLIENT_SECONDS
    assert settings.watching.inactivity_timeout < WATCH_SERVER_SECONDS


def test_an_outage_of_half_an_hour_ends_no_watch() -> None:
    """kopf gives up, and the process with it, where its delays end."""
    delays = configured().networking.error_backoffs
    assert isinstance(delays, tuple)
    assert delays[0] == 1.0
    assert max(delays) <= 15.0
    assert PATIENCE_SECONDS <= sum(delays) < PATIENCE_SECONDS + 15


def test_kopf_has_handlers_of_events_only_so_it_writes_no_annotation_and_no_finalizer() -> None:
    handlers = registry(Program(SETTINGS))
    assert len(handlers._watching.get_all_handlers()) == len(WATCHED)
    assert list(handlers._changing.get_all_handlers()) == []
    assert list(handlers._spawning.get_all_handlers()) == []
    assert list(handlers._indexing.get_all_handlers()) == []


def test_only_labelled_objects_are_watched_where_others_have_many() -> None:
    selectors = configured().watching.label_selectors
    for kind in SELECTED_BY_LABEL:
        assert selectors[kind.group, kind.version, kind.plural] == "stowplan.dev/deployment"


def test_of_what_was_heard_kopf_keeps_no_more_than_whose_it_is() -> None:
    """Its view of an object refers to itself: whole pods would pile up between two collections."""
    program = Program(SETTINGS)
    handlers = registry(program)
    (listener,) = [one for one in handlers._watching.get_all_handlers() if one.id == "pods"]
    dd = deployment_of_user()
    raw = pod(dd)
    raw["spec"] = {"containers": [{"name": "server"}]}
    raw["metadata"]["managedFields"] = [{"manager": "kubelet"}]
    asyncio.run(listener.fn(event={"type": "ADDED", "object": raw}))  # type: ignore[call-arg, arg-type]
    assert raw.keys() == {"apiVersion", "kind", "metadata"}
    assert raw["metadata"].keys() >= {"name", "namespace", "uid", "resourceVersion", "labels"}
    assert "managedFields" not in raw["metadata"]
    (kept,) = program._observed.snapshot(KEY).pods
    assert kept["status"]["phase"] == "Running"
