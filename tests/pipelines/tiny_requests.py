"""A tiny pipeline, one request with a fixed seed, placements by name, and a watch over where weights are read.

Not named ``requests``: test folders come first on the import path, and libraries import a package of that name.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from diffusers import DiffusionPipeline
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves

from stowplan_agent.accelerators.emulated import EmulatedAccelerator, EmulatedCard
from stowplan_agent.weights import WeightsEngine
from stowplan_agent.weights.ledger import Tier
from stowplan_agent.weights.timeline import Stretch
from stowplan_api.placement import ComponentPlacement, GroupPlacement
from stowplan_api.record import Component

NAMES = ["tiny-wan", "tiny-wan-two-experts", "tiny-flux", "tiny-sdxl", "tiny-qwen"]
FOUR = ["tiny-wan", "tiny-flux", "tiny-sdxl", "tiny-qwen"]
"""One of each kind: a video model, an image model with two encoders, a UNet, and a causal language model as encoder."""
VIEWS = frozenset({"slice", "view", "as_strided", "detach", "alias"})


@dataclass(frozen=True)
class Tiny:
    """A loaded pipeline and the output of `run` before anything manages its weights."""

    pipe: Any
    reference: torch.Tensor


def load(folder: Path) -> Tiny:
    """Load a checkpoint. Its weights are memory-mapped at any offset; here each is moved to an aligned address first.

    CPU kernels take another path for operands that are not 16-byte aligned, which rounds differently (a difference of
    about 1e-6 in the output). Packed weights are always aligned, so the reference must be as well.
    """
    pipe = DiffusionPipeline.from_pretrained(folder, dtype=torch.float32, local_files_only=True)
    pipe.set_progress_bar_config(disable=True)
    for module in modules(pipe).values():
        for tensor in [*module.parameters(), *module.buffers()]:
            tensor.data = tensor.data.clone()
    return Tiny(pipe, run(pipe))


def modules(pipe: Any) -> dict[str, torch.nn.Module]:
    return {name: part for name, part in pipe.components.items() if isinstance(part, torch.nn.Module)}


def run(pipe: Any, steps: int | None = None) -> torch.Tensor:
    """One request: 32x32, 5 frames for a video, fixed prompt and seed; two or three steps unless told."""
    frames = {"num_frames": 5} if "Wan" in type(pipe).__name__ else {}
    call = {"prompt": "a red fox", "width": 32, "height": 32, "output_type": "pt"}
    few = 3 if modules(pipe).keys() >= {"transformer_2"} else 2  # three reach both experts
    call["num_inference_steps"] = steps or few
    output = pipe(**call, **frames, generator=torch.Generator("cpu").manual_seed(5))
    return torch.as_tensor(output.frames if frames else output.images).detach().clone()


@contextmanager
def managed(
    pipe: Any, accelerator: EmulatedAccelerator | None = None, **card: Any
) -> Iterator[tuple[WeightsEngine, EmulatedAccelerator]]:
    """The pipeline under management; afterwards the ledger agrees with the card, and every hook is off."""
    accelerator = accelerator or EmulatedAccelerator(EmulatedCard(**({"capacity_bytes": 1 << 30} | card)))
    engine = WeightsEngine(accelerator)
    engine.adopt(modules(pipe))
    try:
        yield engine, accelerator
        engine.ledger.check(accelerator.counters().weights)
    finally:
        engine.close()
        accelerator.close()


def denoiser(pipe: Any) -> torch.nn.Module:
    """The component that runs once or twice a step."""
    return getattr(pipe, "transformer", None) or pipe.unet


def stack(pipe: Any) -> torch.nn.ModuleList:
    """A stack of repeated layers of the denoiser."""
    if hasattr(pipe, "unet"):
        return pipe.unet.mid_block.attentions[0].transformer_blocks
    names = ("single_transformer_blocks", "transformer_blocks", "blocks")
    return next(getattr(pipe.transformer, name) for name in names if hasattr(pipe.transformer, name))


def ask(pipe: Any, engine: WeightsEngine, steps: int | None = None) -> torch.Tensor:
    """One managed request, during which no operation reads a weight from the host."""
    with engine.request(), OnDevice(engine):
        output = run(pipe, steps)
    engine.ledger.check(engine.accelerator.counters().weights)
    return output


def calls_of(pipe: Any) -> list[str]:
    """Components in the order in which a request calls them."""
    heard: list[str] = []
    handles = [
        part.register_forward_pre_hook(lambda *_, name=name: heard.append(name)) for name, part in modules(pipe).items()
    ]
    decode = pipe.vae.decode
    pipe.vae.decode = lambda *args, **kwargs: (heard.append("vae"), decode(*args, **kwargs))[1]
    try:
        run(pipe)
    finally:
        del pipe.vae.decode
        for handle in handles:
            handle.remove()
    return heard


def stretches_of(calls: list[str]) -> list[Stretch]:
    found: list[Stretch] = []
    for name in calls:
        if found and found[-1].component == name:
            count = found.pop().calls + 1
            found.append(Stretch(name, count, count))
        else:
            found += [Stretch(None, 1, 1), Stretch(name, 1, 1)] if found else [Stretch(name, 1, 1)]
    return found


class OnDevice(TorchDispatchMode):
    """Raises where an operation is given memory of a host copy, as a real device would."""

    def __init__(self, engine: WeightsEngine) -> None:
        super().__init__()
        units = [unit for component in engine._components.values() for unit in component.units()]
        self._host = {unit.host.tensor.untyped_storage()._cdata for unit in units if unit.host is not None}

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        if func._overloadpacket.__name__ not in VIEWS:
            for leaf in tree_leaves((args, kwargs or {})):
                if isinstance(leaf, torch.Tensor) and leaf.untyped_storage()._cdata in self._host:
                    raise AssertionError(f"{func} reads a weight of shape {tuple(leaf.shape)} from the host")
        return func(*args, **(kwargs or {}))


Place = Callable[[Component], ComponentPlacement]


def resident(part: Component) -> ComponentPlacement:
    return ComponentPlacement(name=part.name, mode="Resident")


def offload(pinned: float = 0.0, prefetch: bool = False) -> Place:
    return lambda part: ComponentPlacement(
        name=part.name,
        mode="Offload",
        prefetch=prefetch or None,
        pinned_bytes=(int(pinned * part.total_bytes()),),
    )


def layerwise(share: float, pinned: float = 1.0, lifetime: str = "Permanent", **fields: Any) -> Place:
    """A share of each group's layers resident, and a share of what keeps a host copy pinned."""

    def place(part: Component) -> ComponentPlacement:
        if not part.groups:
            return offload(pinned)(part)
        groups = []
        for group in part.groups:
            layers = len(group.layer_bytes)
            kept = int(share * layers)
            keeping = layers if lifetime == "Forward" else layers - kept
            groups.append(
                GroupPlacement(
                    name=group.name,
                    resident_layers=kept,
                    lifetime=lifetime,
                    pinned_layers=(int(pinned * keeping),),
                    **fields,
                )
            )
        return ComponentPlacement(name=part.name, mode="Layerwise", loose_lifetime=lifetime, groups=tuple(groups))

    return place


PLACEMENTS: dict[str, Place] = {
    "resident": resident,
    "offload": offload(),
    "offload, half pinned, prefetched": offload(0.5, prefetch=True),
    "streamed": layerwise(0.0),
    "streamed, three slots, nothing held": layerwise(0.0, lifetime="Forward", slots=3),
    "a quarter, pageable": layerwise(0.25, pinned=0.0),
    "half, leading": layerwise(0.5, policy="Leading", slots=3),
    "half, forward, strided": layerwise(0.5, pinned=0.6, lifetime="Forward"),
    "most, forward, leading": layerwise(0.8, lifetime="Forward", policy="Leading", slots=3),
    "every layer": layerwise(1.0),
    "every layer, forward": layerwise(1.0, lifetime="Forward"),
}


def place_all(engine: WeightsEngine, place: Place) -> None:
    for part in engine.describe():
        engine.place(place(part))


def balances(engine: WeightsEngine) -> dict[tuple[str, str], int]:
    return {(part.name, tier.value): engine.ledger.held(part.name, tier) for part in engine.describe() for tier in Tier}
