"""Cases that broke other engines (shared cases W, H and T): direct calls, odd questions, a walk over all tensors."""

from __future__ import annotations

import gc
import weakref
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from diffusers import ModelMixin
from transformers import PreTrainedModel

from pipelines.tiny_requests import FOUR, PLACEMENTS, Tiny, ask, balances, load, managed, modules, place_all, run
from stowplan_agent.weights import AdoptionError
from stowplan_agent.weights.host import HostBuffer

SOME = ["resident", "offload", "streamed, three slots, nothing held"]
IDS = torch.tensor([[5, 9, 11, 1]])


@pytest.fixture(scope="module", params=FOUR)
def tiny(request: pytest.FixtureRequest, write_tiny: Callable[[str], Path]) -> Tiny:
    return load(write_tiny(request.param))


def latents(pipe: Any) -> torch.Tensor:
    config = pipe.vae.config
    causal = getattr(config, "z_dim", None)  # of VAEs for videos, which have one more dimension
    shape = (1, config.latent_channels, 4, 4) if causal is None else (1, causal, 2, 4, 4)
    return torch.randn(shape, generator=torch.Generator().manual_seed(1))


def encode_and_decode(pipe: Any) -> list[torch.Tensor]:
    with torch.no_grad():
        found = [
            pipe.text_encoder(IDS, output_hidden_states=True).hidden_states[-1],
            pipe.vae.decode(latents(pipe)).sample,
        ]
        if pipe.text_encoder.can_generate():
            found.append(pipe.text_encoder.generate(IDS, max_new_tokens=3, do_sample=False))
        return [tensor.clone() for tensor in found]


def test_w7_components_called_by_hand_before_and_after_a_request(tiny: Tiny) -> None:
    """RUNTIME 4: ``forward``, ``decode`` and ``generate``, in every placement."""
    expected = encode_and_decode(tiny.pipe)
    with managed(tiny.pipe) as (engine, _):
        for name in PLACEMENTS:
            place_all(engine, PLACEMENTS[name])
            at_rest = balances(engine)
            assert all(map(torch.equal, encode_and_decode(tiny.pipe), expected)), name
            if name in SOME:
                assert torch.equal(ask(tiny.pipe, engine), tiny.reference)
                assert all(map(torch.equal, encode_and_decode(tiny.pipe), expected)), name
            with engine.request():
                assert balances(engine) == at_rest


def test_w4_managed_bytes_are_all_parameters_and_buffers_each_storage_once(tiny: Tiny) -> None:
    with managed(tiny.pipe) as (engine, _):
        for part in engine.describe():
            module = modules(tiny.pipe)[part.name]
            tensors = {id(tensor): tensor for tensor in [*module.parameters(), *module.buffers()]}
            packed = sum(-(-tensor.nbytes // 256) * 256 for tensor in tensors.values())
            assert part.total_bytes() == packed


def test_w6_no_decision_is_read_off_where_a_parameter_lies(tiny: Tiny, monkeypatch: pytest.MonkeyPatch) -> None:
    def asked(_: object) -> torch.device:
        raise AssertionError("the engine asked a module for its device")

    with monkeypatch.context() as patched:
        for kind in (ModelMixin, PreTrainedModel):
            patched.setattr(kind, "device", property(asked))
        engines = managed(tiny.pipe)
        engine, _ = engines.__enter__()
        place_all(engine, PLACEMENTS["half, leading"])
    assert torch.equal(ask(tiny.pipe, engine), tiny.reference)
    engines.__exit__(None, None, None)


class Walker:
    """At every layer and entry: no tensor of the pipeline is on the meta device or not a number."""

    def __init__(self, pipe: Any) -> None:
        self.parts = list(modules(pipe).values())
        self.heard = 0

    def __getattr__(self, name: str) -> Callable[..., None]:
        return lambda *_: self.look(name)

    def look(self, event: str) -> None:
        self.heard += 1
        if event.startswith("component"):
            for part in self.parts:
                for tensor in [*part.parameters(), *part.buffers()]:
                    assert not tensor.is_meta and tensor.untyped_storage().nbytes() > 0
                    assert not tensor.is_floating_point() or not tensor.isnan().any()


def test_w9_no_tensor_is_ever_empty_or_on_the_meta_device(tiny: Tiny) -> None:
    """RUNTIME 4."""
    with managed(tiny.pipe) as (engine, _):
        walker = Walker(tiny.pipe)
        for name in SOME[1:]:
            place_all(engine, PLACEMENTS[name])
            walker.look("component")
            engine.observer = walker
            with engine.request():
                run(tiny.pipe)
            engine.observer = None
            walker.look("component")
        assert walker.heard > 100


def test_w9_a_component_that_its_loader_left_on_meta_is_refused_by_name(tiny: Tiny) -> None:
    with torch.device("meta"):
        empty = type(tiny.pipe.vae).from_config(tiny.pipe.vae.config)
    with (
        managed(tiny.pipe) as (engine, card),
        pytest.raises(AdoptionError, match=r"component vae_2: tensor \S+ was left"),
    ):
        engine.adopt({"vae_2": empty})
    assert card.counters().weights == 0


def test_w10_buffers_keep_their_values_and_identity_through_every_placement(tiny: Tiny) -> None:
    def buffers() -> dict[str, torch.Tensor]:
        return {
            f"{name}.{key}": value for name, part in modules(tiny.pipe).items() for key, value in part.named_buffers()
        }

    before = {key: (id(value), value.clone()) for key, value in buffers().items()}
    assert before
    with managed(tiny.pipe) as (engine, _):
        for name in ("resident", "streamed", "offload", "resident"):
            place_all(engine, PLACEMENTS[name])
            if name == "streamed":
                ask(tiny.pipe, engine)
            for key, value in buffers().items():
                assert (id(value), True) == (before[key][0], torch.equal(value, before[key][1]))


def test_w16_everything_layerwise_and_the_same_request_twice(tiny: Tiny) -> None:
    """Loose weights are visitors too here: nothing at all is held between two intervals."""
    with managed(tiny.pipe) as (engine, _):
        place_all(engine, PLACEMENTS["streamed, three slots, nothing held"])
        for _ in range(2):
            assert torch.equal(ask(tiny.pipe, engine), tiny.reference)


def test_state_dict_is_whole_in_every_placement(tiny: Tiny) -> None:
    expected = {name: {k: v.clone() for k, v in part.state_dict().items()} for name, part in modules(tiny.pipe).items()}
    with managed(tiny.pipe) as (engine, _):
        for name in SOME:
            place_all(engine, PLACEMENTS[name])
            for part, module in modules(tiny.pipe).items():
                state = module.state_dict()
                assert state.keys() == expected[part].keys()
                assert all(torch.equal(state[key], expected[part][key]) for key in state)


def live_host_buffers() -> int:
    gc.collect()
    return sum(1 for each in gc.get_objects() if type(each) is HostBuffer)


def test_host_memory_goes_back_to_the_kernel_at_commit_and_comes_again_when_demoted(tiny: Tiny) -> None:
    with managed(tiny.pipe) as (engine, card):
        before = live_host_buffers()
        mapped = [
            weakref.ref(unit.host.tensor.untyped_storage())
            for part in engine._components.values()
            for unit in part.units()
            if unit.host is not None
        ]
        place_all(engine, PLACEMENTS["resident"])
        card.synchronize()
        engine.commit()
        assert live_host_buffers() == before - len(mapped)
        assert not any(storage() is not None for storage in mapped)
        place_all(engine, PLACEMENTS["offload"])
        assert live_host_buffers() == before
        assert torch.equal(ask(tiny.pipe, engine), tiny.reference)
