"""What HTTP and the metrics cost: requests with them and without, in pairs, on tiny pipelines.

    python benchmarks/http_overhead.py [--pairs 40] [--output results/...json]      # less than 3 minutes

One agent a kind starts on a tiny real diffusers pipeline and the emulated card, as it does in tests. Each pair runs one
request twice, by ``Service.run`` and by a client with an open connection, in turns which first; client, server and
pipeline share a process, so the client's own work counts against the server. Images are one POST, whose answer has the
PNG in base64. Videos are three requests: create, follow the events to the end, fetch the MP4; what its encoder takes is
measured beside and left out, as the direct run has no file at its end.

The metrics are measured as `watching` says, on requests of its own, half as many.

- ``http`` and ``metrics``, each with ``seconds`` and ``cpu``: of the clock on the wall, and of the process. ``without``
  and ``through`` are medians, ``ratio`` is the one over the other, ``overheadMs`` the median of the differences within
  pairs, with its quartiles.
- ``aloneMs``: what HTTP takes with a pipeline that has its result at once, and what watching takes without a request:
  which also a machine tells whose requests differ by more than that. Quartiles beside the median.
- ``allowedMs``: 5 ms for each request over HTTP (a video is three), or 1 % of ``without`` where that is more; of the
  metrics always 1 %. ``passUs`` is what they take alone, over the passes of the request.
- ``claims``: whether ``aloneMs`` and the median overhead on the wall are at most what is allowed.
"""

from __future__ import annotations

import argparse
import http.client
import importlib.util
import io
import json
import os
import sys
import tempfile
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from datetime import UTC, datetime
from pathlib import Path
from statistics import median
from typing import Any

from pairs import Pair, Took, figures_of, in_turns, spread, timed
from result import heading, say, write
from watching import watched_pairs

os.environ.setdefault("OMP_NUM_THREADS", "1")
EXAMPLES = Path(__file__).resolve().parent.parent / "examples"
ALLOWED_SECONDS, ALLOWED_SHARE = 0.005, 0.01
REQUESTS = {"image": 1, "video": 3}
KINDS = {"image": ("tiny-flux", "24Mi", "32x32@1"), "video": ("tiny-wan", "40Mi", "32x32x1@1")}
PROMPT = "a red kite over the dunes"


@contextmanager
def agent(model: str, card: str, shape: str, folder: Path) -> Iterator[tuple[Any, int, list[Any]]]:
    """A started agent: its service, the port of its server, and where a result is put that every request gets."""
    from stowplan_agent.cli.specification import local_spec
    from stowplan_agent.cluster.boot import new_agent
    from stowplan_agent.cluster.local import LocalReporter
    from stowplan_agent.inventory.frames import frame_contract
    from stowplan_agent.lifecycle import Progress, StartSettings, Startup
    from stowplan_agent.lifecycle.service import Service, serving_defaults
    from stowplan_agent.lifecycle.threads import limit_threads
    from stowplan_agent.serving.app import create_app
    from stowplan_agent.serving.door import Door
    from stowplan_agent.serving.metrics import AgentMetrics
    from stowplan_agent.serving.queue import RequestQueue
    from stowplan_agent.serving.server import start_server

    limit_threads()
    spec_of = importlib.util.spec_from_file_location("tiny_models", EXAMPLES / "tiny_models.py")
    assert spec_of is not None and spec_of.loader is not None
    program = importlib.util.module_from_spec(spec_of)
    spec_of.loader.exec_module(program)
    path = program.write_model(model, folder / model)
    spec = local_spec(path, [shape], dtype="float32", device_memory=card, device_reserve="1Mi", host_memory=None)
    settings = StartSettings.read(spec, {"STOWPLAN_ACCELERATOR": "emulated"}, memory_limit=8 << 30)
    metrics, door = AgentMetrics(), Door()
    progress = Progress(LocalReporter(new_agent(datetime.now(UTC), "0"), 8 << 30, io.StringIO()), door, metrics)
    startup = Startup(settings, progress)
    assert startup.run() == "Ready", startup.error
    service = Service(startup.prepared, spec, startup.preparation.checkpoint, metrics)
    queue = RequestQueue(metrics=metrics)
    defaults = serving_defaults(spec, frame_contract(startup.preparation.checkpoint), {})
    server = start_server(create_app(door, queue, metrics, defaults), 0)
    at_once: list[Any] = []
    queue.open(
        lambda wanted, cancelled: at_once[0] if at_once else service.run(wanted, cancelled),
        service.admit,
        service.recover,
    )
    progress.open_door()
    try:
        yield service, server.port, at_once
    finally:
        queue.stop()
        server.stop()
        queue.shelf.close()
        startup.close()


def request(service: Any) -> Any:
    """The request that the client's bodies stand for."""
    from stowplan_agent.serving.requests import GenerationRequest

    shape = service.spec.workload.shapes[0]
    kind: Any = "image" if service.checkpoint.pipeline.startswith("Flux") else "video"
    return GenerationRequest(kind, PROMPT, None, shape.width, shape.height, shape.frames, shape.steps, 7, None)


def asked(connection: http.client.HTTPConnection, method: str, path: str, body: Any = None) -> bytes:
    """The whole answer."""
    headers = {} if body is None else {"Content-Type": "application/json"}
    connection.request(method, path, None if body is None else json.dumps(body), headers)
    answer = connection.getresponse()
    data = answer.read()
    assert answer.status == 200, data
    return data


def by_image(connection: http.client.HTTPConnection) -> None:
    """One image over HTTP."""
    asked(connection, "POST", "/v1/images/generations", {"prompt": PROMPT, "seed": 7})


def by_video(connection: http.client.HTTPConnection) -> None:
    """One video over HTTP, from its making to its file."""
    video = json.loads(asked(connection, "POST", "/v1/videos", {"prompt": PROMPT, "seed": 7}))["id"]
    asked(connection, "GET", f"/v1/videos/{video}/events")
    asked(connection, "GET", f"/v1/videos/{video}/content")


def http_pairs(
    service: Any, port: int, at_once: list[Any], kind: str, count: int
) -> tuple[list[Pair], list[Took], Took]:
    """So many pairs; what HTTP takes alone; and what the encoder takes that only HTTP has, nothing for images."""
    from stowplan_agent.serving import media

    wanted = request(service)
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=600)
    over_http = by_image if kind == "image" else by_video
    result = service.run(wanted, lambda: False)
    over_http(connection)
    found = in_turns(lambda: service.run(wanted, lambda: False), lambda: over_http(connection), count)
    at_once.append(result)
    alone = [timed(lambda: over_http(connection)) for _ in range(200)]
    if kind == "image":
        return found, alone, Took(0.0, 0.0)
    encoded = [timed(lambda: media.mp4(result.frames, 16)) for _ in range(50)]
    return found, alone, Took(median(one.seconds for one in encoded), median(one.cpu for one in encoded))


def row(found: Sequence[Pair], alone: Sequence[Took], besides: Took, allowed: float) -> dict[str, Any]:
    """The figures of what was measured, of which ``allowed`` seconds are, or 1 % where that is more."""
    figures: dict[str, Any] = {"pairs": len(found)}
    for clock in ("seconds", "cpu"):
        without, through = ([getattr(getattr(pair, side), clock) for pair in found] for side in ("without", "through"))
        figures[clock] = figures_of(without, through, getattr(besides, clock))
    figures["aloneMs"] = spread(one.seconds - besides.seconds for one in alone)
    most = max(allowed, ALLOWED_SHARE * figures["seconds"]["without"])
    return figures | {"allowedMs": round(most * 1e3, 3)}


def measured(kind: str, folder: Path, count: int) -> dict[str, Any]:
    """What HTTP and the metrics cost requests of one kind."""
    model, card, shape = KINDS[kind]
    say(f"{kind}: starting {model} on {card}")
    with agent(model, card, shape, folder) as (service, port, at_once):
        say(f"{kind}: the metrics")
        found, alone, passes = watched_pairs(service, count // 2)
        metrics = row(found, alone, Took(0.0, 0.0), 0.0)
        metrics |= {"passes": passes, "passUs": round(metrics["aloneMs"]["median"] * 1e3 / passes, 1)}
        say(f"{kind}: HTTP")
        http = row(*http_pairs(service, port, at_once, kind, count), ALLOWED_SECONDS * REQUESTS[kind])
    return {"model": model, "shape": shape, "http": http, "metrics": metrics}


CLAIMS = {"http": "HTTP takes at most 1 % or 5 ms", "metrics": "the metrics take at most 1 %"}


def claims_of(kind: str, figures: dict[str, Any]) -> dict[str, bool]:
    """What holds, said as it is found."""
    found = {}
    for what, claim in CLAIMS.items():
        costs = figures[what]
        for how, took in (("in pairs", costs["seconds"]["overheadMs"]), ("by itself", costs["aloneMs"])):
            found[f"{kind}: {claim}, {how}"] = took["median"] <= costs["allowedMs"]
            say(f"{kind}: {what} {took['median']} ms {how}, of {costs['allowedMs']} ms")
    return found


def main(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--pairs", type=int, default=40)
    parser.add_argument("--output", type=Path)
    chosen = parser.parse_args(arguments)
    document = heading("serving") | {"kinds": {}, "claims": {}}
    with tempfile.TemporaryDirectory() as folder:
        for kind in KINDS:
            document["kinds"][kind] = figures = measured(kind, Path(folder), chosen.pairs)
            document["claims"] |= claims_of(kind, figures)
    if chosen.output is not None:
        write(chosen.output, document)
    print(json.dumps(document, indent=1))
    return 0 if all(document["claims"].values()) else 1


if __name__ == "__main__":
    sys.exit(main())
