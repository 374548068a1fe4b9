"""Other libraries replace ``layer.forward`` while the engine manages the layer: accelerate, diffusers, a compiler."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import torch
from accelerate.hooks import ModelHook as AccelerateHook
from accelerate.hooks import add_hook_to_module, remove_hook_from_module
from diffusers.hooks import HookRegistry, ModelHook

from pipelines.tiny_requests import PLACEMENTS, ask, load, managed, place_all, stack


class Heard(AccelerateHook):
    """Counts, as accelerate's hooks do: around a forward that it has put in place of the layer's own."""

    calls = 0

    def pre_forward(self, module: torch.nn.Module, *args: object, **kwargs: object) -> tuple[object, object]:
        self.calls += 1
        return args, kwargs


class Seen(ModelHook):
    """The same for diffusers, whose caches and guiders are such hooks."""

    calls = 0

    def new_forward(self, module: torch.nn.Module, *args: object, **kwargs: object) -> object:
        self.calls += 1
        return self.fn_ref.original_forward(*args, **kwargs)


def test_a_forward_that_another_library_replaces_computes_with_the_layers_weights(
    write_tiny: Callable[[str], Path],
) -> None:
    tiny = load(write_tiny("tiny-qwen"))
    heard, seen = Heard(), Seen()
    with managed(tiny.pipe) as (engine, _):
        layers = stack(tiny.pipe)
        place_all(engine, PLACEMENTS["streamed"])
        add_hook_to_module(layers[1], heard)
        HookRegistry.check_if_exists_or_initialize(layers[2]).register_hook(seen, "seen")
        layers[3].forward = torch.compile(layers[3].forward, backend="eager")
        for place in ("streamed", "half, forward, strided", "offload", "resident"):
            place_all(engine, PLACEMENTS[place])
            before = heard.calls, seen.calls
            assert torch.equal(ask(tiny.pipe, engine), tiny.reference), place
            assert heard.calls > before[0] and seen.calls > before[1]
        remove_hook_from_module(layers[1])
        place_all(engine, PLACEMENTS["streamed"])
        assert torch.equal(ask(tiny.pipe, engine), tiny.reference)
