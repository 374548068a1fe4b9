"""LoRA on managed layers: loaded, fused, unfused and unloaded, each like on a resident twin, bit for bit."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import Any

import pytest
import torch

from pipelines.adapters import adapt_encoder, align, denoiser, tuners, write_adapter
from pipelines.test_engine_failures import Faulty, digest, failures
from pipelines.tiny_requests import PLACEMENTS, Tiny, ask, balances, load, managed, modules, place_all, resident, run
from stowplan_agent.pipeline.adapters import rewrite_within
from stowplan_agent.weights import RewriteError, WeightsEngine
from stowplan_agent.weights.ledger import Tier

MODELS = ["tiny-wan", "tiny-flux", "tiny-sdxl"]
Step = Callable[[Any, Path], None]


def load_adapter(pipe: Any, folder: Path) -> None:
    pipe.load_lora_weights(folder)


def fuse(pipe: Any, folder: Path) -> None:
    pipe.fuse_lora([denoiser(pipe)], lora_scale=0.7)


def fuse_safely(pipe: Any, folder: Path) -> None:
    pipe.fuse_lora([denoiser(pipe)], safe_fusing=True)


def unfuse(pipe: Any, folder: Path) -> None:
    pipe.unfuse_lora([denoiser(pipe)])


def unload(pipe: Any, folder: Path) -> None:
    pipe.unload_lora_weights()


STEPS: list[Step] = [load_adapter, unload, load_adapter, fuse, unfuse, fuse_safely, unload]


@pytest.fixture(scope="module")
def adapter_of(write_tiny: Callable[[str], Path], tmp_path_factory: pytest.TempPathFactory) -> Callable[..., Path]:
    """A function from a model to the folder of its adapter, written on first use."""
    folder = tmp_path_factory.mktemp("adapters")

    def write(name: str, **fields: Any) -> Path:
        target = folder / f"{name}-{len(fields)}"
        return target if target.exists() else write_adapter(load(write_tiny(name)).pipe, target, **fields)

    return write


@pytest.fixture(scope="module")
def expected(write_tiny: Callable[[str], Path], adapter_of: Callable[..., Path]) -> Callable[[str], list[torch.Tensor]]:
    """A function from a model to the outputs of a resident twin after each of `STEPS`; the first is without any."""
    known: dict[str, list[torch.Tensor]] = {}

    def outputs(name: str) -> list[torch.Tensor]:
        if name not in known:
            twin = load(write_tiny(name))
            known[name] = [twin.reference]
            for step in STEPS:
                step(twin.pipe, adapter_of(name))
                align(twin.pipe)
                known[name].append(run(twin.pipe))
        return known[name]

    return outputs


@contextmanager
def hosted(tiny: Tiny, placement: str, card: Any = None, **limits: int) -> Iterator[WeightsEngine]:
    with managed(tiny.pipe, card) as (engine, _):
        rewrite_within(tiny.pipe, partial(engine.rewriting, **limits))
        place_all(engine, PLACEMENTS[placement])
        yield engine


def hooks_of(pipe: Any) -> list[tuple[str, str, int, int]]:
    """How many hooks there are on each module that has any."""
    return [
        (name, path.replace(".base_layer", ""), len(module._forward_pre_hooks), len(module._forward_hooks))
        for name, part in modules(pipe).items()
        for path, module in part.named_modules()
        if module._forward_pre_hooks or module._forward_hooks
    ]


MATRIX = [("tiny-wan", name) for name in ("resident", "streamed", "half, leading", "offload, half pinned, prefetched")]
MATRIX += [(model, "half, forward, strided") for model in MODELS] + [
    ("tiny-flux", "streamed"),
    ("tiny-sdxl", "streamed"),
]


@pytest.mark.parametrize(("model", "placement"), MATRIX)
def test_w11_every_step_equals_the_resident_twins(
    model: str,
    placement: str,
    write_tiny: Callable[[str], Path],
    adapter_of: Callable[..., Path],
    expected: Callable[[str], list[torch.Tensor]],
) -> None:
    tiny = load(write_tiny(model))
    with hosted(tiny, placement) as engine:
        outputs = expected(model)
        assert not torch.equal(outputs[0], outputs[1])
        assert torch.equal(ask(tiny.pipe, engine), outputs[0])
        for step, output in zip(STEPS, outputs[1:], strict=True):
            step(tiny.pipe, adapter_of(model))
            engine.check()
            assert torch.equal(ask(tiny.pipe, engine), output), step
        place_all(engine, resident)  # from host copies of what was fused
        assert torch.equal(ask(tiny.pipe, engine), outputs[-1])


@pytest.mark.parametrize("placement", PLACEMENTS)
def test_w12_placement_hooks_and_seconds_stay(
    placement: str, write_tiny: Callable[[str], Path], adapter_of: Callable[..., Path]
) -> None:
    tiny = load(write_tiny("tiny-wan"))
    with hosted(tiny, placement) as engine:
        engine.commit()
        hooks, before = hooks_of(tiny.pipe), engine.describe()
        pins = {part.name: engine.ledger.held(part.name, Tier.PINNED) for part in before}
        entries = {part.name: engine.entry(part.name) for part in before}
        seconds, computed = timed(tiny.pipe, engine)
        load_adapter(tiny.pipe, adapter_of("tiny-wan"))
        assert hooks_of(tiny.pipe) == hooks
        assert not [m for part in modules(tiny.pipe).values() for m in part.modules() if hasattr(m, "_hf_hook")]
        for old, new in zip(before, engine.describe(), strict=True):
            entry, grown = engine.entry(new.name), new.total_bytes() / old.total_bytes()
            assert entry.model_copy(update={"pinned_bytes": None}) == entries[new.name].model_copy(
                update={"pinned_bytes": None}
            )
            assert pins[new.name] <= engine.ledger.held(new.name, Tier.PINNED) <= pins[new.name] * grown * 1.02
            assert (grown > 1) is (new.name == "transformer")
        with_adapter, computed_with = timed(tiny.pipe, engine)
        grown = sum(part.total_bytes() for part in engine.describe()) / sum(part.total_bytes() for part in before)
        assert with_adapter - computed_with <= (seconds - computed) * grown * 1.05 + 1e-4
        assert with_adapter <= 1.05 * seconds * max(grown, computed_with / computed)


def timed(pipe: Any, engine: WeightsEngine) -> tuple[float, float]:
    """Seconds of a request by the card's clock: in all, and without those in which compute stood still for copies."""
    card = engine.accelerator
    start, waited = card.record(), card.wait_seconds()
    ask(pipe, engine)
    seconds = card.elapsed(start, card.record())
    return seconds, seconds - (card.wait_seconds() - waited)


def test_w17_four_streamed_requests_with_an_adapter(
    write_tiny: Callable[[str], Path], adapter_of: Callable[..., Path], expected: Callable[[str], list[torch.Tensor]]
) -> None:
    for model in ("tiny-wan", "tiny-flux"):
        tiny = load(write_tiny(model))
        with hosted(tiny, "streamed, three slots, nothing held") as engine:
            load_adapter(tiny.pipe, adapter_of(model))
            held = balances(engine)
            for _ in range(4):
                assert torch.equal(ask(tiny.pipe, engine), expected(model)[1])
                assert balances(engine) == held


def test_an_adapter_of_some_layers_leaves_the_groups_alone(
    write_tiny: Callable[[str], Path], adapter_of: Callable[..., Path]
) -> None:
    """Layers of unlike bytes: the groups are those of adoption, and the ring's slots hold the largest."""
    folder = adapter_of("tiny-wan", rank=64, layers=[1, 2])
    twin, tiny = load(write_tiny("tiny-wan")), load(write_tiny("tiny-wan"))
    load_adapter(twin.pipe, folder)
    align(twin.pipe)
    with hosted(tiny, "streamed") as engine:
        before = {part.name: [group.name for group in part.groups] for part in engine.describe()}
        load_adapter(tiny.pipe, folder)
        after = {part.name: part for part in engine.describe()}
        assert {name: [group.name for group in part.groups] for name, part in after.items()} == before
        assert len(set(after["transformer"].groups[0].layer_bytes)) == 2
        assert torch.equal(ask(tiny.pipe, engine), run(twin.pipe))
        place_all(engine, PLACEMENTS["half, leading"])
        assert torch.equal(ask(tiny.pipe, engine), run(twin.pipe))


def test_two_adapters_one_switched_off_while_fused_and_one_deleted(
    write_tiny: Callable[[str], Path], adapter_of: Callable[..., Path]
) -> None:
    folders = [adapter_of("tiny-wan"), adapter_of("tiny-wan", rank=8)]
    twin, tiny = load(write_tiny("tiny-wan")), load(write_tiny("tiny-wan"))

    def steps(pipe: Any) -> Iterator[None]:
        for name, folder in zip(("one", "two"), folders, strict=True):
            pipe.load_lora_weights(folder, adapter_name=name)
        yield pipe.set_adapters(["one", "two"], [0.5, 0.8])
        yield pipe.delete_adapters("one")
        fuse(pipe, folders[1])
        yield pipe.disable_lora()  # PEFT takes it out of the weights in the next pass, streamed or not
        yield pipe.enable_lora()

    with hosted(tiny, "half, leading") as engine:
        for number, _ in enumerate(zip(steps(twin.pipe), steps(tiny.pipe), strict=True)):
            align(twin.pipe)
            for _ in range(2):
                assert torch.equal(ask(tiny.pipe, engine), run(twin.pipe)), number


@pytest.mark.parametrize("placement", ["resident", "streamed", "half, forward, strided"])
def test_an_adapter_of_a_text_encoder(write_tiny: Callable[[str], Path], placement: str) -> None:
    """By the engine's own context: whatever is loaded, and by whomever."""
    twin, tiny = load(write_tiny("tiny-flux")), load(write_tiny("tiny-flux"))
    adapt_encoder(twin.pipe.text_encoder)
    with hosted(tiny, placement) as engine:
        with engine.rewriting():
            adapt_encoder(tiny.pipe.text_encoder)
            tiny.pipe.text_encoder.to(device="meta", dtype=torch.float32)  # diffusers moves it where a parameter is
        assert torch.equal(ask(tiny.pipe, engine), run(twin.pipe))
        for tuner in tuners(twin.pipe.text_encoder):
            tuner.merge()
        with engine.rewriting():
            for tuner in tuners(tiny.pipe.text_encoder):
                tuner.merge()
        assert torch.equal(ask(tiny.pipe, engine), run(twin.pipe))
        tiny.pipe.unload_lora_weights()
        twin.pipe.unload_lora_weights()
        assert not tuners(tiny.pipe.text_encoder)
        assert torch.equal(ask(tiny.pipe, engine), run(twin.pipe))


@pytest.mark.parametrize("placement", ["streamed", "half, leading"])
@pytest.mark.parametrize("step", [load_adapter, fuse, fuse_safely, unfuse, unload])
def test_a_failure_at_any_driver_call_of_a_rewrite_undoes_all_of_it(
    step: Step, placement: str, write_tiny: Callable[[str], Path], adapter_of: Callable[..., Path]
) -> None:
    tiny, card, folder = load(write_tiny("tiny-wan")), Faulty(), adapter_of("tiny-wan")
    module = modules(tiny.pipe)["transformer"]
    with hosted(tiny, placement, card) as engine:
        if step is not load_adapter:
            load_adapter(tiny.pipe, folder)
        if step is unfuse:
            fuse(tiny.pipe, folder)
        engine.commit()
        bits, held, described = digest(module), balances(engine), engine.describe()
        merged, output = [list(tuner.merged_adapters) for tuner in tuners(module)], ask(tiny.pipe, engine)
        fused = set(tiny.pipe.fused_loras)
        for _ in failures(card, lambda: step(tiny.pipe, folder), step=5):
            assert digest(module) == bits
            assert (balances(engine), engine.describe()) == (held, described)
            assert [list(tuner.merged_adapters) for tuner in tuners(module)] == merged
            assert set(tiny.pipe.fused_loras) == fused
            engine.check()
        assert digest(module) != bits
        assert torch.isfinite(ask(tiny.pipe, engine)).all()
        assert not torch.equal(output, ask(tiny.pipe, engine)) or step is fuse_safely


@pytest.mark.parametrize("placement", ["resident", "streamed"])
def test_h11_fusing_without_room_on_the_host_is_refused_with_numbers(
    placement: str, write_tiny: Callable[[str], Path], adapter_of: Callable[..., Path]
) -> None:
    tiny, folder = load(write_tiny("tiny-wan")), adapter_of("tiny-wan")
    module = modules(tiny.pipe)["transformer"]
    with managed(tiny.pipe) as (engine, _):
        place_all(engine, PLACEMENTS[placement])
        room = 1 << 40
        rewrite_within(tiny.pipe, lambda: engine.rewriting(room))
        load_adapter(tiny.pipe, folder)
        output, bits, held = ask(tiny.pipe, engine), digest(module), balances(engine)
        changed = sum(next(part for part in engine.describe() if part.name == "transformer").groups[0].layer_bytes)
        room = changed - 1
        with pytest.raises(RewriteError, match=rf"component transformer: .* of {room} bytes .*nothing was changed"):
            fuse(tiny.pipe, folder)
        assert (digest(module), balances(engine)) == (bits, held)
        assert not any(tuner.merged for tuner in tuners(module)) and not tiny.pipe.fused_loras
        assert torch.equal(ask(tiny.pipe, engine), output)
        room = changed
        fuse(tiny.pipe, folder)
        assert balances(engine) == held  # the old bytes are given back
        engine.check()
        assert all(tuner.merged for tuner in tuners(module))


def test_without_an_engine_nothing_is_wrapped_and_with_one_calls_inside_calls_are_one_rewrite(
    write_tiny: Callable[[str], Path], adapter_of: Callable[..., Path]
) -> None:
    pipe = load(write_tiny("tiny-wan")).pipe
    assert "load_lora_weights" not in vars(pipe)
    entered = []

    @contextmanager
    def rewriting() -> Iterator[None]:
        entered.append(1)
        yield

    plain = pipe.unload_lora_weights
    vars(pipe)["unload_lora_weights"] = lambda: (pipe.disable_lora(), plain())
    rewrite_within(pipe, rewriting)
    load_adapter(pipe, adapter_of("tiny-wan"))
    pipe.unload_lora_weights()
    assert len(entered) == 2
