"""Loading without converting: a checkpoint of another dtype costs no second copy of itself on the host.

diffusers and transformers are lazy where a file has the dtype that was asked for: parameters are views of the mapped
file, and no byte is read. Where it has another (an fp32 checkpoint, bf16 asked) they convert, tensor by tensor, on one
thread, into memory of the process: a component is then on the host as a whole before anybody says where it belongs.
Within `deferred_conversions` such a conversion is promised instead. Its result is an ordinary tensor whose memory is
mapped and never touched, which costs nothing, and `Deferred` knows which bytes of which file fill it.

What must hold: an operation within reads right values, since a promise is settled before the first operation that reads
or writes it; looking at it (views, ``.data``, ``Parameter(...)``) settles nothing. After the context nobody watches.

Only the thread that entered the context is watched, so transformers is told to load on it alone. Converted at once, as
without the context: what is not a mapped file (GGUF and other quantised weights, files read with ``disable_mmap``),
what is no conversion between floating dtypes, what has gaps or repeats, what is smaller than a page, and whatever other
threads load (diffusers starts some where ``HF_ENABLE_PARALLEL_LOADING`` is set).

Host memory while loading: beside the mapped files, whose pages the kernel takes back at will, only tensors below a page
each, non-persistent buffers, and what operations on weights read and make (fused experts, say; those they read go again
after each). A 260 MiB fp32 transformer of diffusers, asked for in bf16, took 1.8 MiB of anonymous memory at its peak, a
T5 of 242 MiB 1.0 MiB. Without the context it is every converted component, whole, in the dtype asked for.
"""

from __future__ import annotations

import mmap
import os
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, Final

import torch
from torch.overrides import TorchFunctionMode
from torch.utils._python_dispatch import TorchDispatchMode

from stowplan_agent.pipeline.deferred import Deferred
from stowplan_agent.pipeline.mapped import MappedFiles, Span

ONE_THREAD: Final = "HF_DEACTIVATE_ASYNC_LOAD"
"""The environment variable by which transformers is told to load on the calling thread. It is read at every load."""
CONVERT: Final = torch.ops.aten._to_copy.default
SAME: Final = torch.ops.aten.detach.default
"""The same bytes, seen as they are. Two thirds of a load's operations, for diffusers asks the model for all its tensors
with each of a checkpoint's files: 0.85 s of CPU with 1,100 tensors in 19 files, and 0.70 where these pass at once."""
RAW_READS: Final = frozenset(
    getattr(torch.Tensor, name) for name in ("__array__", "__dlpack__", "__reduce_ex__", "__repr__", "numpy", "tolist")
)
"""Reads of a tensor's memory that are no operation of torch's."""


@contextmanager
def deferred_conversions() -> Iterator[Deferred]:
    """Promise conversions of mapped weights within, rather than make them. One load at a time."""
    deferred, before = Deferred(), os.environ.get(ONE_THREAD)
    os.environ[ONE_THREAD] = "1"
    try:
        with _RawReads(deferred), _Operations(deferred, MappedFiles()):
            yield deferred
    finally:
        if before is None:
            os.environ.pop(ONE_THREAD, None)
        else:
            os.environ[ONE_THREAD] = before


class _Operations(TorchDispatchMode):
    """Makes promises of conversions, and settles them before they are read, written, or fed by something else."""

    def __init__(self, deferred: Deferred, files: MappedFiles) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self._deferred = deferred
        self._files = files

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        if func is SAME:
            return func(*args)
        kwargs = kwargs or {}
        if func is CONVERT and self._can_wait(*args, **kwargs):
            return self._deferred.promise(args[0], kwargs["dtype"])
        promised = [
            tensor
            for tensor in _strided((args, kwargs))
            if self._deferred.source_of(tensor.untyped_storage()) is not None
        ]
        if promised and func.is_view:
            seen = func(*args, **kwargs)
            if _places(seen) <= _places(promised):
                return seen
            # The operation had to copy, or looks at the bytes as something else.
        for tensor in promised:
            self._deferred.settle(tensor.untyped_storage())
        for tensor in _written(func, args, kwargs):
            if self._files.may_hold(tensor):
                self._deferred.settle_fed_by(Span.of(tensor))
        return func(*args, **kwargs)

    def _can_wait(
        self,
        source: torch.Tensor,
        *,
        dtype: torch.dtype | None = None,
        layout: torch.layout | None = None,
        device: torch.device | None = None,
        pin_memory: bool | None = None,
        non_blocking: bool = False,
        memory_format: torch.memory_format | None = None,
    ) -> bool:
        """Whether a conversion's result depends on a mapped file alone, and lies in memory as its source does."""
        return (
            dtype not in (None, source.dtype)
            and dtype.is_floating_point
            and source.is_floating_point()
            and type(source) is torch.Tensor
            and source.numel() * dtype.itemsize >= mmap.PAGESIZE
            and layout in (None, torch.strided)
            and (device is None or device.type == "cpu")
            and not pin_memory
            and memory_format in (None, torch.preserve_format)
            and torch.ops.aten.is_non_overlapping_and_dense(source)
            and self._files.hold(source)
        )


class _RawReads(TorchFunctionMode):
    """Settles a tensor before something other than torch reads its memory."""

    def __init__(self, deferred: Deferred) -> None:
        super().__init__()
        self._deferred = deferred

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        if func in RAW_READS:
            for tensor in _strided(args):
                self._deferred.settle(tensor.untyped_storage())
        return func(*args, **(kwargs or {}))


def _strided(value: Any) -> Iterator[torch.Tensor]:
    """The tensors with a storage of their own among an operation's arguments or results."""
    if isinstance(value, torch.Tensor):
        if value.layout is torch.strided:
            yield value
    elif isinstance(value, (list, tuple)):
        for item in value:
            yield from _strided(item)
    elif isinstance(value, dict):
        yield from _strided(list(value.values()))


def _written(func: Any, args: Any, kwargs: Any) -> Iterator[torch.Tensor]:
    """The tensors that an operation changes, by its schema."""
    for index, argument in enumerate(func._schema.arguments):
        if argument.alias_info is not None and argument.alias_info.is_write:
            yield from _strided(args[index] if index < len(args) else kwargs.get(argument.name))


def _places(value: Any) -> set[tuple[int, torch.dtype]]:
    return {(tensor.untyped_storage()._cdata, tensor.dtype) for tensor in _strided(value)}
