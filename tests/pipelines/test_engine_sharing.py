"""RUNTIME 5 and 6 with cases W5, W15 and H1: shared modules, equal names with other contents, names nobody knows."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import nn

from engine_fuzz import live_host_buffers
from pipelines.tiny_requests import PLACEMENTS, Tiny, ask, load, managed, modules, place_all, run
from stowplan_agent.accelerators.emulated import EmulatedAccelerator, EmulatedCard
from stowplan_agent.inventory import read_checkpoint, take_inventory
from stowplan_agent.weights import WeightsEngine
from stowplan_agent.weights.ledger import Tier
from stowplan_api.placement import Placement

SOME = ["streamed, three slots, nothing held", "offload", "half, leading", "resident"]


def test_w5_an_encoder_of_two_pipelines_has_one_placement_and_one_host_copy(
    write_tiny: Callable[[str], Path],
) -> None:
    """RUNTIME 5. The second pipeline has names of its own; the encoder is managed under the first one's."""
    one: Tiny = load(write_tiny("tiny-qwen"))
    other = load(write_tiny("tiny-qwen")).pipe
    other.register_modules(text_encoder=one.pipe.text_encoder)
    with managed(one.pipe) as (engine, card):
        alone, buffers = engine.describe(), live_host_buffers()
        engine.adopt({f"other_{name}": module for name, module in modules(other).items()})
        assert [part.name for part in engine.describe()] == [
            *(part.name for part in alone),
            *(f"other_{name}" for name in modules(other) if name != "text_encoder"),
        ]
        added = [part for part in engine.describe() if part.name.startswith("other_")]
        units = sum(1 + sum(len(group.layer_bytes) for group in part.groups) for part in added)
        assert live_host_buffers() <= buffers + units
        assert engine.ledger.total(Tier.PAGEABLE) == sum(part.total_bytes() for part in engine.describe())
        for place in SOME:
            place_all(engine, PLACEMENTS[place])
            for pipe in (one.pipe, other, one.pipe):
                with engine.request():
                    assert torch.equal(run(pipe), one.reference), place
            engine.ledger.check(card.counters().weights)
        del other, pipe  # the other pipeline goes, the encoder stays with its last user
        assert torch.equal(ask(one.pipe, engine), one.reference)


def test_w5_a_component_goes_with_its_last_pipeline(write_tiny: Callable[[str], Path]) -> None:
    one, two = load(write_tiny("tiny-qwen")), load(write_tiny("tiny-qwen"))
    two.pipe.register_modules(text_encoder=one.pipe.text_encoder)
    with managed(one.pipe) as (engine, _):
        before = engine.ledger.total(Tier.PAGEABLE)
        engine.adopt({f"other_{name}": module for name, module in modules(two.pipe).items()})
        assert "other_text_encoder" not in [part.name for part in engine.describe()]
        engine.drop([part.name for part in engine.describe() if part.name.startswith("other_")])
        assert engine.ledger.total(Tier.PAGEABLE) == before
        place_all(engine, PLACEMENTS["streamed"])
        assert torch.equal(ask(one.pipe, engine), one.reference)
        with engine.request():  # the dropped ones are ordinary modules again, beside an encoder that is not
            assert torch.equal(run(two.pipe), one.reference)


def test_w15_two_ranks_compute_each_with_its_own_shard(write_tiny: Callable[[str], Path]) -> None:
    """Same names, same shapes, other contents: nothing is shared on account of a name."""
    ranks = [load(write_tiny("tiny-qwen")) for _ in range(2)]
    with torch.no_grad():
        for parameter in modules(ranks[1].pipe)["transformer"].parameters():
            parameter.mul_(1.01)
    references = [run(rank.pipe) for rank in ranks]
    assert not torch.equal(*references)
    cards = [EmulatedAccelerator(EmulatedCard(1 << 30)) for _ in ranks]
    engines = [WeightsEngine(card, rank=number) for number, card in enumerate(cards)]
    for engine, rank in zip(engines, ranks, strict=True):
        engine.adopt(modules(rank.pipe))
    for place in SOME:
        for engine in engines:
            for part in engine.describe():
                engine.place(for_two_ranks(PLACEMENTS[place](part)))
        for _ in range(2):
            for engine, rank, reference in zip(engines, ranks, references, strict=True):
                with engine.request():
                    assert torch.equal(run(rank.pipe), reference), place
    for engine, card in zip(engines, cards, strict=True):
        engine.ledger.check(card.counters().weights)
        engine.close()
        card.close()


def for_two_ranks(entry: Any) -> Any:
    """The same entry with the same pins on a second rank."""
    changes: dict[str, Any] = {}
    if entry.pinned_bytes is not None:
        changes["pinned_bytes"] = entry.pinned_bytes * 2
    if entry.groups is not None:
        changes["groups"] = tuple(
            group.model_copy(update={"pinned_layers": group.pinned_layers * 2}) for group in entry.groups
        )
    return entry.model_copy(update=changes)


class Foo(nn.Module):
    """A component of no library: a list of four equal layers."""

    def __init__(self) -> None:
        super().__init__()
        self.parts = nn.ModuleList(nn.Linear(64, 64) for _ in range(4))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        for part in self.parts:
            x = part(x)
        return x


def test_h1_components_of_any_name_are_in_the_inventory_with_bytes_and_layers(
    tiny_flux: Path, tmp_path: Path, write_tiny: Callable[[str], Path]
) -> None:
    """RUNTIME 6: an encoder that is called ``mllm`` is found by its type, in files."""
    folder = tmp_path / "model"
    shutil.copytree(tiny_flux, folder)
    (folder / "text_encoder_2").rename(folder / "mllm")
    index = json.loads((folder / "model_index.json").read_text())
    index["mllm"] = index.pop("text_encoder_2")
    (folder / "model_index.json").write_text(json.dumps(index))
    before = {part.name: part for part in take_inventory(read_checkpoint(tiny_flux), "float32").components}
    found = {part.name: part for part in take_inventory(read_checkpoint(folder), "float32").components}
    assert found.keys() == before.keys() - {"text_encoder_2"} | {"mllm"}
    assert found["mllm"].groups == before["text_encoder_2"].groups != ()
    assert found["mllm"].total_bytes == before["text_encoder_2"].total_bytes


def test_h1_components_of_any_name_are_managed_and_placed(write_tiny: Callable[[str], Path]) -> None:
    """RUNTIME 6: by type again, in a loaded pipeline; ``foo`` is no library's."""
    pipe = load(write_tiny("tiny-qwen")).pipe
    foo, x = Foo(), torch.rand(2, 64)
    with torch.no_grad():
        expected = foo(x)
    found = {"mllm" if name == "text_encoder" else name: module for name, module in modules(pipe).items()} | {
        "foo": foo
    }
    card = EmulatedAccelerator(EmulatedCard(1 << 30))
    engine = WeightsEngine(card)
    engine.adopt(found)
    sizes = {part.name: part for part in engine.describe()}
    assert [len(group.layer_bytes) for group in sizes["foo"].groups] == [4]
    assert len(sizes["mllm"].groups) == 2  # of the language model and of the vision tower
    for place in SOME:
        place_all(engine, PLACEMENTS[place])
        assert all(engine.entry(name) == PLACEMENTS[place](part) for name, part in sizes.items())
        with torch.no_grad(), engine.request():
            assert torch.equal(foo(x), expected)
    engine.close()
    card.close()


@pytest.mark.parametrize("forgotten", ["text_encoder", "transformer", "vae"])
def test_runtime_6_a_plan_covers_every_component_or_is_refused(
    forgotten: str, write_tiny: Callable[[str], Path]
) -> None:
    pipe = load(write_tiny("tiny-qwen")).pipe
    card = EmulatedAccelerator(EmulatedCard(1 << 30))
    engine = WeightsEngine(card)

    def seed(parts: Any) -> Any:
        return Placement(components=tuple(PLACEMENTS["streamed"](part) for part in parts if part.name != forgotten))

    with pytest.raises((KeyError, ValueError), match=forgotten):
        engine.adopt(modules(pipe), seed)
    engine.close()
    card.close()
