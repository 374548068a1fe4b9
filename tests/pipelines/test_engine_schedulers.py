"""RUNTIME 11: the second step of every scheduler, and tiled and untiled decoding whichever was expected.

Schedulers differ in how often and with what they call the denoiser: Heun's and KDPM2's call it twice a step, multistep
ones keep outputs of earlier steps. Here are all of diffusers that run with one of the tiny denoisers. LMS and
DPMSolverSDE need packages that this project does not install.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterator
from contextlib import nullcontext
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import diffusers
import pytest
import torch
from diffusers import AutoencoderKL, SchedulerMixin

from pipelines.tiny_requests import PLACEMENTS, layerwise, load, modules, place_all, run
from stowplan_agent.accelerators.emulated import EmulatedAccelerator, EmulatedCard
from stowplan_agent.weights import Timeline, WeightsEngine
from stowplan_agent.weights.timeline import Stretch

OF_THE_MODEL = [
    "CogVideoXDDIM", "DDIM", "DDIMParallel", "DDPM", "DDPMParallel", "DEISMultistep", "DPMSolverMultistep",
    "DPMSolverMultistepInverse", "DPMSolverSinglestep", "EulerAncestralDiscrete", "EulerDiscrete", "HeunDiscrete",
    "IPNDM", "KDPM2AncestralDiscrete", "KDPM2Discrete", "LCM", "SASolver", "TCD", "UniPCMultistep",
]  # fmt: skip
OF_ITS_OWN = ["CMStochasticIterative", "EDMDPMSolverMultistep", "EDMEuler", "DDIMInverse", "PNDM"]
"""With settings of their own: they do not take a UNet's."""
FLOWS = {
    "tiny-wan": [
        "DEISMultistep", "DPMSolverMultistep", "DPMSolverSinglestep", "FlowMapEulerDiscrete", "FlowMatchEulerDiscrete",
        "FlowMatchHeunDiscrete", "FlowMatchLCM", "LTXEulerAncestralRF", "MiniMaxH3", "SASolver", "UniPCMultistep",
    ],
    "tiny-flux": ["FlowMatchEulerDiscrete", "FlowMatchLCM"],
    "tiny-qwen": ["FlowMatchEulerDiscrete", "FlowMatchLCM"],
}  # fmt: skip
SETTINGS: dict[str, dict[str, Any]] = {"PNDM": {"skip_prk_steps": True}}  # with Runge-Kutta steps it needs twelve
pytestmark = pytest.mark.filterwarnings("ignore:__array__ implementation:DeprecationWarning")  # diffusers', not ours
CASES = [("tiny-sdxl", name) for name in (*OF_THE_MODEL, *OF_ITS_OWN)]
CASES += [(model, name) for model, names in FLOWS.items() for name in names]


@dataclass
class Twins:
    """One pipeline twice: as it was loaded, and streamed."""

    plain: Any
    streamed: Any
    engine: WeightsEngine


@pytest.fixture(scope="module")
def twins(write_tiny: Callable[[str], Path]) -> Iterator[Callable[[str], Twins]]:
    found: dict[str, Twins] = {}
    card = EmulatedAccelerator(EmulatedCard(1 << 30))

    def get(name: str) -> Twins:
        if name not in found:
            plain, streamed = load(write_tiny(name)).pipe, load(write_tiny(name)).pipe
            engine = WeightsEngine(card)
            engine.adopt(modules(streamed))
            place_all(engine, layerwise(0.25, lifetime="Forward"))
            found[name] = Twins(plain, streamed, engine)
        return found[name]

    yield get
    for each in found.values():
        each.engine.close()
    card.close()


@pytest.mark.parametrize(("model", "name"), CASES)
def test_runtime_11_two_steps_of_every_scheduler(model: str, name: str, twins: Callable[[str], Twins]) -> None:
    pair = twins(model)
    kind = getattr(diffusers, f"{name}Scheduler", None) or getattr(diffusers.schedulers, f"{name}Scheduler")
    assert inspect.isclass(kind) and issubclass(kind, SchedulerMixin)
    outputs = []
    for pipe, engine in ((pair.plain, None), (pair.streamed, pair.engine)):
        own = pipe.scheduler
        pipe.scheduler = kind(**SETTINGS.get(name, {})) if name in OF_ITS_OWN else kind.from_config(own.config)
        torch.manual_seed(6)  # some draw their noise from torch's own generator
        try:
            with engine.request() if engine else nullcontext():
                outputs.append(run(pipe, steps=2))
        finally:
            pipe.scheduler = own
    assert outputs[0].isfinite().all() and outputs[0].std() > 0
    assert torch.equal(*outputs)


def test_runtime_11_the_list_has_every_scheduler_that_diffusers_offers_for_such_a_unet(
    twins: Callable[[str], Twins],
) -> None:
    offered = {kind.__name__.removesuffix("Scheduler") for kind in twins("tiny-sdxl").plain.scheduler.compatibles}
    assert offered - {"LMSDiscrete", "DPMSolverSDE"} <= {*OF_THE_MODEL, *OF_ITS_OWN}


def tiled(vae: Any, wanted: bool) -> None:
    """Tiles of four by four latents that overlap, or one whole."""
    if not wanted:
        vae.disable_tiling()
    elif hasattr(vae, "tile_latent_min_size"):
        vae.enable_tiling()
        vae.tile_latent_min_size, vae.tile_sample_min_size = 4, 4 * 2 ** (len(vae.config.block_out_channels) - 1)
    else:
        scale = vae.spatial_compression_ratio
        sides = {"tile_sample_min_height": 4 * scale, "tile_sample_min_width": 4 * scale}
        vae.enable_tiling(**sides, tile_sample_stride_height=3 * scale, tile_sample_stride_width=3 * scale)


def deep_vae() -> Any:
    """One with stacks of layers of its own, to be streamed."""
    torch.manual_seed(3)
    return AutoencoderKL(
        down_block_types=("DownEncoderBlock2D",) * 2, up_block_types=("UpDecoderBlock2D",) * 2,
        block_out_channels=(16, 16), layers_per_block=4, latent_channels=4, norm_num_groups=4, sample_size=32,
    ).eval()  # fmt: skip


@pytest.mark.parametrize("first", [False, True])
@pytest.mark.parametrize("name", ["tiny-wan", "tiny-sdxl", "deep"])
def test_runtime_11_tiled_and_untiled_decoding_whichever_was_expected(
    name: str, first: bool, write_tiny: Callable[[str], Path]
) -> None:
    vae = deep_vae() if name == "deep" else load(write_tiny(name)).pipe.vae
    latent = getattr(vae.config, "z_dim", None)
    shape = (1, vae.config.latent_channels, 8, 8) if latent is None else (1, latent, 1, 8, 8)
    z = torch.rand(shape, generator=torch.Generator().manual_seed(1))
    passes = [0]
    vae.decoder.register_forward_pre_hook(lambda *_: passes.__setitem__(0, passes[0] + 1))
    expected, counted = {}, {}
    with torch.no_grad():
        for wanted in (False, True):
            tiled(vae, wanted)
            passes[0] = 0
            expected[wanted], counted[wanted] = vae.decode(z).sample, passes[0]
    assert counted[True] > counted[False] and not torch.equal(expected[True], expected[False])
    card = EmulatedAccelerator(EmulatedCard(1 << 30))
    engine = WeightsEngine(card)
    engine.adopt({"vae": vae})
    assert name != "deep" or engine.describe()[0].groups
    with torch.no_grad():
        for place in ("streamed", "half, leading"):
            place_all(engine, PLACEMENTS[place])
            engine.timeline = Timeline([Stretch("vae", 1, counted[first])])
            for wanted in (first, not first):
                tiled(vae, wanted)
                with engine.request():
                    assert torch.equal(vae.decode(z).sample, expected[wanted]), (place, wanted)
                engine.ledger.check(card.counters().weights)
    engine.close()
    card.close()
