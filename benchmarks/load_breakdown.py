"""Where the wall time of a load goes: the product's functions, wrapped from outside while one load runs.

Nothing in the product is there for this. Each wrapped call leaves its thread, start and end, a microsecond of work; a
thread of the staging ring makes five of them a piece of 16 MiB, well under 1 % of the time that the piece takes.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterable, Iterator
from contextlib import ExitStack, contextmanager
from functools import wraps
from typing import Any, NamedTuple
from unittest.mock import patch

import torch

from stowplan_agent.accelerators.copy_stream import CudaCopyStream
from stowplan_agent.accelerators.cuda import CudaAccelerator
from stowplan_agent.accelerators.emulated import EmulatedAccelerator
from stowplan_agent.accelerators.staging import Staging
from stowplan_agent.accelerators.staging_memory import StagingMemory
from stowplan_agent.weights import admission, host_copies, relocation
from stowplan_agent.weights.hooks import Hooks
from stowplan_agent.weights.loading.source import UnitSource
from stowplan_agent.weights.unit import Unit

READ = "read"
STEPS: dict[str, tuple[tuple[Any, str], ...]] = {
    "mappings": ((admission, "MappedFiles"),),
    "survey": ((admission, "survey"),),
    "takeOver": ((admission, "take_over"),),
    "hooks": ((Hooks, "install"),),
    "openStaging": ((StagingMemory, "__init__"),),
    "fillHostCopies": ((host_copies, "fill_all"),),
    "loadDevice": ((relocation, "load_all"),),
    "allocate": ((CudaAccelerator, "allocate"), (EmulatedAccelerator, "allocate")),
    "queueFill": ((CudaAccelerator, "fill"), (EmulatedAccelerator, "fill")),
    "waitForBytes": ((CudaAccelerator, "wait"), (EmulatedAccelerator, "wait")),
    "bind": ((Unit, "bind"),),
    "settle": ((Unit, "settle"),),
    "synchronize": ((CudaAccelerator, "synchronize"), (EmulatedAccelerator, "synchronize")),
    READ: ((UnitSource, "read"),),
    "send": ((CudaCopyStream, "send"), (CudaCopyStream, "set_fence")),
    "waitForPiece": ((Staging, "_take"),),
    "stage": ((Staging, "_stage"),),
}
"""What is timed, by the name that the result has for it; steps may lie within one another."""


class Span(NamedTuple):
    """One call: by which thread, and from when to when in seconds of the monotonic clock."""

    thread: int
    start: float
    end: float


class Breakdown:
    """The calls of one load."""

    def __init__(self) -> None:
        self.spans: dict[str, list[Span]] = {name: [] for name in (*STEPS, "waitForEvent")}

    @contextmanager
    def watching(self) -> Iterator[None]:
        """Within it every step is timed."""
        with ExitStack() as stack:
            for name, places in STEPS.items():
                for owner, function in places:
                    timed = self._timed(name, getattr(owner, function))
                    stack.enter_context(patch.object(owner, function, timed))
            stack.enter_context(patch.object(CudaCopyStream, "fence", self._fence))
            yield

    def summary(self, begun: float, ended: float) -> dict[str, Any]:
        """Of a load between these moments, in milliseconds."""
        reads = self.spans[READ]
        first, last = min(span.start for span in reads), max(span.end for span in reads)
        caller = threading.get_ident()
        on_caller = {name: [span for span in spans if span.thread == caller] for name, spans in self.spans.items()}
        return {
            "wall": _ms(ended - begun),
            "beforeFirstByte": _ms(first - begun),
            "reading": _ms(last - first),
            "afterLastByte": _ms(ended - last),
            "caller": {name: _total(spans) for name, spans in on_caller.items() if spans},
            "callerBeforeFirstByte": {
                name: _total(found)
                for name, spans in on_caller.items()
                if (found := [span for span in spans if span.start < first])
            },
            "openStaging": [{"from": _ms(span.start - begun), "to": _ms(span.end - begun)}
                            for span in self.spans["openStaging"]],
            "readers": self._readers(first, last),
        }  # fmt: skip

    def _readers(self, first: float, last: float) -> dict[str, Any]:
        """Of all threads that read: where their time between the first and the last byte went, as shares of 1."""
        threads = {span.thread for span in self.spans[READ]}
        whole = len(threads) * (last - first)

        def share(name: str) -> float:
            inside = (
                min(span.end, last) - max(span.start, first) for span in self.spans[name] if span.thread in threads
            )
            return sum(seconds for seconds in inside if seconds > 0) / whole

        shares = {name: share(name) for name in (READ, "waitForPiece", "waitForEvent", "send")}
        reads = sorted(span.end - span.start for span in self.spans[READ])
        return {
            "threads": len(threads),
            **shares,
            "locksAndPython": share("stage") - shares[READ] - shares["waitForEvent"] - shares["send"],
            "readMedian": _ms(reads[len(reads) // 2]),
            "readLongest": _ms(reads[-1]),
            "lastToEnd": [_ms(last - max(span.end for span in self.spans[READ] if span.thread == thread))
                          for thread in sorted(threads)],
        }  # fmt: skip

    def _timed(self, name: str, function: Callable[..., Any]) -> Callable[..., Any]:
        spans = self.spans[name]

        @wraps(function)
        def run(*args: Any, **kwargs: Any) -> Any:
            start = time.monotonic()
            try:
                return function(*args, **kwargs)
            finally:
                spans.append(Span(threading.get_ident(), start, time.monotonic()))

        return run

    def _fence(self) -> torch.cuda.Event:
        timed = self._timed("waitForEvent", torch.cuda.Event.synchronize)

        class Fence(torch.cuda.Event):
            def synchronize(self) -> None:
                timed(self)

        return Fence(blocking=True)


def _total(spans: Iterable[Span]) -> dict[str, float]:
    found = list(spans)
    return {"calls": len(found), "ms": _ms(sum(span.end - span.start for span in found))}


def _ms(seconds: float) -> float:
    return round(seconds * 1000, 3)
