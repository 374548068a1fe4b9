"""Layers that are called around their hooks, and modules that somebody patches while they are managed."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves

from stowplan_agent.weights import WeightsEngine
from unit.weights.stacks import PLACEMENTS, Stack, engine_of

ELSEWHERE = "Expected all tensors to be on the same device, but found at least two devices, cuda:0 and cpu!"


def around(part: Stack) -> None:
    """The model runs its layers by ``layer.forward``, as some do."""

    def forward(x: torch.Tensor) -> torch.Tensor:
        x = x + part.tokens
        for name, index in part.order:
            x = part.widen(x) if name == "widen" else getattr(part, name)[index].forward(x)
        return x + part.table

    part.forward = forward


class RealDevice(TorchDispatchMode):
    """Refuses host copies as a GPU does."""

    def __init__(self, engine: WeightsEngine) -> None:
        super().__init__()
        hosts = [unit.host for part in engine._components.values() for unit in part.units()]
        self.host = {host.tensor.untyped_storage()._cdata for host in hosts if host is not None}

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        if func._overloadpacket.__name__ in {"addmm", "mul", "add_", "linear"}:
            for leaf in tree_leaves(args):
                if isinstance(leaf, torch.Tensor) and leaf.untyped_storage()._cdata in self.host:
                    raise RuntimeError(ELSEWHERE)
        return func(*args, **(kwargs or {}))


@pytest.mark.parametrize("placement", PLACEMENTS)
def test_a_layer_called_around_its_hooks_never_computes_with_what_a_slot_held(placement: str) -> None:
    with engine_of(placement) as it:
        part = it.stacks["part"]
        for _ in range(2):
            with it.engine.request():
                assert torch.equal(part(it.x), it.expected)
        around(part)
        for _ in range(2):
            with it.engine.request():
                assert torch.equal(part(it.x), it.expected)


@pytest.mark.parametrize("entry", ["forward", "encode"])
@pytest.mark.parametrize("placement", PLACEMENTS)
def test_where_a_device_refuses_the_host_s_weights_the_error_says_what_to_do(placement: str, entry: str) -> None:
    with engine_of(placement) as it:
        part = it.stacks["part"]
        around(part)
        call = part if entry == "forward" else part.encode
        with it.engine.request(), RealDevice(it.engine):
            if placement in {"resident", "offload"}:
                call(it.x)
                return
            with pytest.raises(RuntimeError, match="same device") as caught:
                call(it.x)
        (note,) = caught.value.__notes__
        assert note.startswith("component part streams its layers") and "call layer(...) instead of" in note


def test_other_errors_are_left_as_they_are() -> None:
    with engine_of("streamed") as it:
        part = it.stacks["part"]
        part.widen.forward = lambda x: x @ x
        with it.engine.request(), pytest.raises(RuntimeError, match="shape") as caught:
            part(it.x)
        assert not hasattr(caught.value, "__notes__")


def patched(old: Callable[..., Any]) -> Callable[..., Any]:
    @functools.wraps(old)
    def new(*args: Any, **kwargs: Any) -> Any:
        return old(*args, **kwargs)

    return new


@pytest.mark.parametrize("placement", PLACEMENTS)
def test_a_layer_s_forward_may_be_replaced_while_it_is_managed(placement: str) -> None:
    with engine_of(placement) as it:
        part = it.stacks["part"]
        layer, root = part.second[1], patched(part.forward)
        layer.forward, part.forward = patched(layer.forward), root
        doubled = layer.forward
        for _ in range(2):
            with it.engine.request():
                assert torch.equal(part(it.x), it.expected)
    assert layer.forward is doubled and part.forward is root, "the engine is closed, and what is not its own stays"
    assert not layer._forward_hooks and not layer._forward_pre_hooks


def test_a_method_that_is_patched_while_it_is_managed_stays_patched_and_is_heard() -> None:
    with engine_of("streamed") as it:
        part = it.stacks["part"]
        part.encode = theirs = patched(part.encode)
        with it.engine.request(), RealDevice(it.engine):
            assert torch.equal(part.encode(it.x), it.expected * 2)
        it.engine.close()
        assert part.encode is theirs and torch.equal(part.encode(it.x), it.expected * 2)
        again = WeightsEngine(it.card)
        again.adopt(it.stacks)
        with again.request():
            assert torch.equal(part.encode(it.x), it.expected * 2)
        again.close()
        assert part.encode is theirs
        del part.encode
        assert torch.equal(part.encode(it.x), it.expected * 2)
