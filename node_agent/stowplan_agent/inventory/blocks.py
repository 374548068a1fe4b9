"""The tensors of a module as bytes: which of them share memory, and by which names each is reached.

Nothing is read: sizes, storages and names are all that is asked, so a module on the meta device will do.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING

from stowplan_agent.inventory.tensors import TORCH_DTYPES, TensorInfo

if TYPE_CHECKING:
    import torch


@dataclass(frozen=True, slots=True)
class Block:
    """Bytes of one storage that one tensor, or several that overlap, touch; with all names that lead to them."""

    names: tuple[str, ...]
    dtype: str
    """The safetensors name of the first tensor's dtype; torch's own where safetensors has none."""
    nbytes: int
    has_buffer: bool

    @property
    def tied(self) -> tuple[str, ...]:
        """The names after the first."""
        return self.names[1:]


def own_parameters(module: torch.nn.Module) -> dict[str, TensorInfo]:
    """The parameters of each inner module once, under the first name of that module; tied ones under each of theirs."""
    return {
        f"{path}.{key}" if path else key: TensorInfo(tuple(value.shape), str(value.dtype), value.nbytes)
        for path, inner in module.named_modules()
        for key, value in inner._parameters.items()
        if value is not None
    }


def blocks_of(module: torch.nn.Module) -> list[Block]:
    """Every byte of ``module`` once, buffers included, in the order of the modules."""
    by_storage: defaultdict[int, list[_Touched]] = defaultdict(list)
    for order, (name, tensor, is_buffer) in enumerate(_named(module)):
        start = int(tensor.storage_offset()) * tensor.dtype.itemsize
        steps = zip(tensor.shape, tensor.stride(), strict=True)
        extent = 1 + sum((size - 1) * step for size, step in steps) if tensor.numel() else 0
        end = start + extent * tensor.dtype.itemsize
        storage = tensor.untyped_storage()._cdata
        by_storage[storage].append(_Touched(start, end, order, name, str(tensor.dtype), is_buffer))
    found: list[tuple[int, Block]] = []
    for touched in by_storage.values():
        found += [_block(members) for members in _overlapping(sorted(touched))]
    return [block for _, block in sorted(found, key=lambda ordered: ordered[0])]


@dataclass(frozen=True, order=True, slots=True)
class _Touched:
    start: int
    end: int
    order: int
    name: str
    dtype: str
    is_buffer: bool


def _named(module: torch.nn.Module) -> Iterator[tuple[str, torch.Tensor, bool]]:
    for path, inner in module.named_modules(remove_duplicate=False):
        prefix = f"{path}." if path else ""
        for tensors, is_buffer in ((inner._parameters, False), (inner._buffers, True)):
            for key, value in tensors.items():
                if value is not None:
                    for name, plain in _plain(prefix + key, value):
                        yield name, plain, is_buffer


def _plain(name: str, tensor: torch.Tensor) -> Iterator[tuple[str, torch.Tensor]]:
    """A tensor, or those that a wrapper class keeps its elements in: the wrapper's own shape takes no bytes."""
    if not hasattr(tensor, "__tensor_flatten__"):
        yield name, tensor
        return
    for inner in tensor.__tensor_flatten__()[0]:
        yield from _plain(f"{name}.{inner}", getattr(tensor, inner))


def _overlapping(touched: list[_Touched]) -> Iterator[list[_Touched]]:
    """Runs of tensors of one storage whose bytes overlap, from the first byte to the last."""
    members: list[_Touched] = []
    reach = 0
    for one in touched:
        if members and one.start >= reach:
            yield members
            members = []
        members.append(one)
        reach = max(reach, one.end, one.start + 1)  # an empty tensor touches nothing, but tied ones belong together
    yield members


def _block(members: list[_Touched]) -> tuple[int, Block]:
    first, *_ = by_order = sorted(members, key=lambda one: one.order)
    nbytes = max(one.end for one in members) - members[0].start
    dtype = TORCH_DTYPES.get(first.dtype.removeprefix("torch."), first.dtype)
    return first.order, Block(tuple(one.name for one in by_order), dtype, nbytes, any(one.is_buffer for one in members))
