"""RUNTIME 2, 3 and 5 on real pipelines: odd layouts, bare parameters, buffers of every kind, other tensor classes."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import torch
from diffusers import AutoencoderKLFlux2
from torch import nn

from pipelines.tiny_requests import FOUR, PLACEMENTS, Tiny, ask, denoiser, load, managed, modules, place_all, run, stack
from pipelines.watched_card import WatchedCard
from stowplan_agent.accelerators.emulated import EmulatedAccelerator, EmulatedCard
from stowplan_agent.weights import WeightsEngine
from stowplan_agent.weights.ledger import Tier

SOME = ["resident", "streamed, three slots, nothing held", "half, leading", "offload", "resident"]


@pytest.fixture
def quick(write_tiny: Callable[[str], Path]) -> Any:
    """The pipeline whose requests take least time, of the test's own."""
    return load(write_tiny("tiny-qwen")).pipe


@pytest.fixture(params=FOUR)
def pipe(request: pytest.FixtureRequest, write_tiny: Callable[[str], Path]) -> Any:
    """A pipeline of the test's own, to change as it likes."""
    return load(write_tiny(request.param)).pipe


def every_tensor(pipe: Any) -> dict[str, torch.Tensor]:
    return {
        f"{part}.{name}": tensor
        for part, module in modules(pipe).items()
        for name, tensor in [*module.named_parameters(), *module.named_buffers()]
    }


def turn(tensor: torch.Tensor) -> torch.Tensor:
    """The same values in another order of memory."""
    if tensor.dim() == 2:
        return tensor.t().contiguous().t()
    formats = {4: torch.channels_last, 5: torch.channels_last_3d}
    return tensor.contiguous(memory_format=formats[tensor.dim()])


def test_runtime_2_strides_are_kept_and_tied_weights_are_one_item(pipe: Any) -> None:
    for number, parameter in enumerate(denoiser(pipe).parameters()):
        if number % 3 == 0 and parameter.dim() in {2, 4, 5}:
            parameter.data = turn(parameter.data)
    layers = stack(pipe)
    name = next(name for name, parameter in layers[3].named_parameters() if parameter.dim() == 2)
    owner, _, leaf = name.rpartition(".")
    tied = layers[3].get_parameter(name)
    layers[1].get_submodule(owner).register_parameter(leaf, tied)
    before = {key: (tensor.shape, tensor.stride(), tensor.clone()) for key, tensor in every_tensor(pipe).items()}
    assert any(not tensor.is_contiguous() for tensor in every_tensor(pipe).values())
    reference = run(pipe)
    with managed(pipe) as (engine, _):
        for place in SOME:
            place_all(engine, PLACEMENTS[place])
            assert torch.equal(ask(pipe, engine), reference), place
            for key, tensor in every_tensor(pipe).items():
                shape, stride, value = before[key]
                assert (tensor.shape, tensor.stride()) == (shape, stride) and torch.equal(tensor, value), key
            assert layers[1].get_parameter(name) is layers[3].get_parameter(name) is tied
        for part in engine.describe():
            unique = {id(tensor): tensor for tensor in tensors_of(modules(pipe)[part.name])}
            assert part.total_bytes() == sum(-(-tensor.nbytes // 256) * 256 for tensor in unique.values())


def tensors_of(module: nn.Module) -> Iterator[torch.Tensor]:
    yield from module.parameters()
    yield from module.buffers()


def bare(pipe: Any) -> dict[str, torch.Tensor]:
    """Buffers, and parameters of modules that have children: what is read without a leaf's own forward."""
    found: dict[str, torch.Tensor] = {}
    for part, module in modules(pipe).items():
        for path, inner in module.named_modules():
            own = [*inner._buffers.items(), *(inner._parameters.items() if next(inner.children(), None) else ())]
            found |= {f"{part}.{path}.{name}": tensor for name, tensor in own if tensor is not None}
    return found


class Reader:
    """At each event of the hooks, bare tensors have the values of the start."""

    def __init__(self, pipe: Any) -> None:
        self.tensors = bare(pipe)
        self.values = {name: tensor.clone() for name, tensor in self.tensors.items()}
        self.heard = 0

    def __getattr__(self, event: str) -> Callable[..., None]:
        return lambda *where: self.read(event, *where)

    def read(self, event: str, *where: Any) -> None:
        self.heard += 1
        for name, tensor in self.tensors.items():
            if not torch.equal(tensor, self.values[name]):
                raise AssertionError(f"{name} has another value at {event} {where}")


def test_runtime_3_bare_parameters_and_buffers_are_valid_at_every_moment(pipe: Any) -> None:
    pipe.vae.register_parameter("scale", nn.Parameter(torch.rand(3)))
    stack(pipe)[2].register_parameter("tokens", nn.Parameter(torch.rand(5)))
    with managed(pipe) as (engine, _):
        reader = Reader(pipe)
        assert {f"{name}.tokens" in key or "scale" in key for key in reader.tensors for name in ("2",)} >= {True}
        for place in SOME[:4]:
            place_all(engine, PLACEMENTS[place])
            reader.read("rest in", place)
            engine.observer = reader
            with engine.request():
                run(pipe)
            engine.observer = None
            reader.read("rest after", place)
        assert reader.heard > 100


def test_w4_bare_parameters_are_on_the_device_whenever_their_parent_is_called(quick: Any) -> None:
    layer = stack(quick)[2]
    layer.register_parameter("tokens", nn.Parameter(torch.rand(5)))
    quick.vae.decoder.register_parameter("scale", nn.Parameter(torch.rand(3)))
    card = WatchedCard()
    heard: list[tuple[str, bool]] = []
    layer.register_forward_pre_hook(lambda module, _: heard.append(("layer", card.holds(module.tokens))))
    quick.vae.decoder.register_forward_pre_hook(lambda module, _: heard.append(("vae", card.holds(module.scale))))
    with managed(quick, card) as (engine, _):
        for place in SOME:
            heard.clear()
            place_all(engine, PLACEMENTS[place])
            ask(quick, engine)
            assert {name for name, _ in heard} == {"layer", "vae"}
            assert all(held for _, held in heard), place


@pytest.mark.parametrize("place", ["streamed", "offload", "resident"])
def test_runtime_3_statistics_of_a_batch_norm_are_read_and_changed_outside_forward(place: str) -> None:
    """Flux 2 normalises latents with ``vae.bn.running_mean`` itself, without calling the module."""
    vae = AutoencoderKLFlux2(
        block_out_channels=(16,) * 4, layers_per_block=4, latent_channels=4, norm_num_groups=4, sample_size=32
    ).eval()
    card = EmulatedAccelerator(EmulatedCard(1 << 30))
    engine = WeightsEngine(card)
    latents = torch.rand(2, 16, 4, 4)
    with torch.no_grad():
        expected = {name: value.clone() for name, value in vae.bn.named_buffers()}
        decoded = vae.decode(latents[:, :4]).sample
        engine.adopt({"vae": vae})
        for target in (place, "half, leading", place):
            for part in engine.describe():
                assert part.groups
                engine.place(PLACEMENTS[target](part))
            for name, value in vae.bn.named_buffers():
                value.add_(1)
                expected[name].add_(1)
            with engine.request():
                assert torch.equal(vae.decode(latents[:, :4]).sample, decoded)
            for name, value in vae.bn.named_buffers():
                assert torch.equal(value, expected[name]), (target, name)
    engine.close()
    card.close()


COUNTS: dict[str, Callable[[nn.Module, torch.Tensor], object]] = {
    "in_place": lambda layer, calls: calls.add_(1),
    "by_another_tensor": lambda layer, calls: setattr(layer, "by_another_tensor", calls + 1),
    "uncounted_by_torch": lambda layer, calls: calls.data.add_(1),
    "by_other_memory": lambda layer, calls: setattr(calls, "data", calls + 1),
    "by_another_storage": lambda layer, calls: calls.set_(calls + 1),
}


def test_w3_a_buffer_that_a_streamed_layer_counts_up_keeps_its_count(pipe: Any) -> None:
    """RUNTIME 3: a mutated buffer keeps its value, and is on the ledger while it is on the device."""
    layer = stack(pipe)[1]
    for way in COUNTS:
        layer.register_buffer(way, torch.zeros(1))
    layer.register_forward_pre_hook(count)
    part = "unet" if hasattr(pipe, "unet") else "transformer"
    with managed(pipe) as (engine, card):
        place_all(engine, PLACEMENTS["streamed"])
        run_once = 0
        for number, place in enumerate(["streamed", "streamed", "resident", "half, forward, strided"]):
            place_all(engine, PLACEMENTS[place])
            ask(pipe, engine)
            run_once = run_once or int(layer.in_place)
            for way in COUNTS:
                assert int(getattr(layer, way)) == run_once * (number + 1) > 0, way
            assert engine.ledger.held(part, Tier.DEVICE) <= card.counters().weights


def count(layer: nn.Module, _inputs: object) -> None:
    for way, add in COUNTS.items():
        add(layer, getattr(layer, way))


class Tagged(nn.Parameter):
    """A parameter class of someone else, with an attribute."""


def test_w13_a_subclass_of_parameter_keeps_its_identity_and_attribute(quick: Any) -> None:
    layer = stack(quick)[1]
    name, plain = next((name, value) for name, value in layer.named_parameters() if value.dim() == 2)
    owner, _, leaf = name.rpartition(".")
    tagged = Tagged(plain.data)
    tagged.kind = "kept"
    layer.get_submodule(owner).register_parameter(leaf, tagged)
    reference = run(quick)
    with managed(quick) as (engine, _):
        for place in SOME:
            place_all(engine, PLACEMENTS[place])
            assert torch.equal(ask(quick, engine), reference)
            found = layer.get_parameter(name)
            assert found is tagged and type(found) is Tagged and found.kind == "kept"


class Wrapper(torch.Tensor):
    """What quantisation libraries make: a tensor without memory of its own, around others that have it."""

    @staticmethod
    def __new__(cls, inner: torch.Tensor, scale: torch.Tensor) -> Wrapper:
        wrapper = torch.Tensor._make_wrapper_subclass(cls, inner.shape, dtype=torch.float32)
        wrapper.inner, wrapper.scale = inner, scale
        return wrapper

    def __tensor_flatten__(self) -> tuple[list[str], None]:
        return ["inner", "scale"], None

    @classmethod
    def __torch_dispatch__(cls, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        if func is torch.ops.aten.detach.default:
            return cls(args[0].inner, args[0].scale)
        raise NotImplementedError(f"{func} of a wrapper")


class Foreign(torch.Tensor):
    """A subclass that holds its own memory."""


STRANGE: dict[str, Callable[[torch.Tensor], torch.Tensor]] = {
    "Wrapper": lambda plain: Wrapper(plain.to(torch.int8), torch.ones(1)),
    "Foreign": lambda plain: plain.as_subclass(Foreign),
}


@pytest.mark.parametrize("kind", STRANGE)
def test_h2_a_component_of_a_tensor_class_that_is_not_known_is_fixed_with_its_name(
    kind: str, write_tiny: Callable[[str], Path]
) -> None:
    """RUNTIME 5: the reason is reported, inner bytes are counted, and the other components go where they are told."""
    tiny: Tiny = load(write_tiny("tiny-qwen"))
    plain = sum(tensor.nbytes for tensor in [*tiny.pipe.transformer.parameters(), *tiny.pipe.transformer.buffers()])
    layer = tiny.pipe.transformer.transformer_blocks[1]
    weight = layer.attn.to_q.weight
    strange = nn.Parameter(STRANGE[kind](weight.data), requires_grad=False)
    layer.attn.to_q.weight = strange
    with managed(tiny.pipe) as (engine, _):
        (fixed,) = [part for part in engine.describe() if part.fixed]
        assert (fixed.name, fixed.fixed.mode) == ("transformer", "Resident")
        assert f"to_q.weight is a {kind}" in fixed.fixed.reason
        saved = 3 * weight.numel() - 4 if kind == "Wrapper" else 0  # one byte an element, and one scale
        assert engine.ledger.held("transformer", Tier.DEVICE) == fixed.total_bytes() == plain - saved
        for part in engine.describe():
            if not part.fixed:
                engine.place(PLACEMENTS["streamed"](part))
        assert layer.attn.to_q.weight is strange and type(strange) is type(STRANGE[kind](weight.data))
        if kind == "Foreign":  # the other class computes nothing
            assert torch.equal(ask(tiny.pipe, engine), tiny.reference)
