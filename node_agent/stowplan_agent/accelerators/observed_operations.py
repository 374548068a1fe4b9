"""Every tensor operation of a thread, seen from below: what it cost, and which storages it made.

A dispatch mode sees operations after autograd and before kernels, so that nothing a pipeline does escapes it. A
storage is new when neither an input nor an earlier result has it: views and in-place operations make none. Counts of
floating-point operations come from torch's own table (torch.utils.flop_counter); operations that are not in it cost
the bytes that they read and write.
"""

from __future__ import annotations

import weakref
from collections.abc import Callable
from typing import Any

import torch
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves
from torch.utils.flop_counter import flop_registry

Listener = Callable[[int, int, list[torch.UntypedStorage]], None]
"""Called with floating-point operations, bytes read and written, and the storages that the operation made."""


class ObservedOperations(TorchDispatchMode):
    """A context in which ``listener`` hears of every operation of the calling thread."""

    def __init__(self, listener: Listener) -> None:
        """Nothing is observed until the context is entered."""
        super().__init__()  # type: ignore[no-untyped-call]
        self._listener = listener

    def __torch_dispatch__(
        self, func: Any, types: Any, args: tuple[Any, ...] = (), kwargs: dict[str, Any] | None = None
    ) -> Any:
        kwargs = kwargs or {}
        result = func(*args, **kwargs)
        inputs = [leaf for leaf in tree_leaves((args, kwargs)) if isinstance(leaf, torch.Tensor)]
        outputs = [leaf for leaf in tree_leaves(result) if isinstance(leaf, torch.Tensor)]
        known = {tensor.untyped_storage()._cdata for tensor in inputs}
        made: list[torch.UntypedStorage] = []
        for tensor in outputs:
            storage = tensor.untyped_storage()
            if storage._cdata not in known and storage not in _seen:
                known.add(storage._cdata)
                _seen.add(storage)
                made.append(storage)
        # A view costs nothing; everything else moves its bytes once.
        nbytes = sum(tensor.nbytes for tensor in inputs + outputs) if made or _writes(func) else 0
        formula = flop_registry.get(func._overloadpacket)
        flops = int(formula(*args, **kwargs, out_val=result)) if formula is not None else 0
        self._listener(flops, nbytes, made)
        return result


_seen: weakref.WeakSet[torch.UntypedStorage] = weakref.WeakSet()


def _writes(func: Any) -> bool:
    return bool(func._schema.is_mutable)
