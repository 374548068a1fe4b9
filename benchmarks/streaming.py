"""How close streaming comes to its limit: a real-size Wan 14B denoiser through the weights engine, on a GPU.

    python benchmarks/streaming.py [--tokens 4800 32760] [--resident 0 10 20 30 40] > results/...json

Each figure is a ratio against a baseline of the same run, printed as one JSON document:

- ``overBound``: a steady pass over max(all-resident compute, streamed bytes / link rate), all measured here; with
  ``--pageable`` also for layers that are not pinned, which go through the staging ring: ``link`` has its rate, and
  ``driverPageableBytesPerSecond`` that of the driver's own copy of such memory.
- ``groupOffload.speedup``: diffusers' block-level group offload with a stream, its fastest setting, over our pass at
  0 resident layers; ``peakRatio`` is our peak over its peak.
- ``bitEqual``: whether the output equals that of the engine's own all-resident row, which runs first;
  ``equalsUnmanaged``: whether it equals that of the model before the engine had it (compiled kernels may differ, as
  torch compiles anew for the second shape).

Weights are random: time and bits do not depend on their values. Needs about 60 GiB of device and 60 GiB of host memory.
"""

from __future__ import annotations

import argparse
import gc
import json
import sys
import time
from collections.abc import Callable
from typing import Any

import torch
from diffusers import WanTransformer3DModel
from diffusers.hooks import apply_group_offloading

from result import heading, say
from stowplan_agent.accelerators.cuda import CudaAccelerator
from stowplan_agent.calibration import measure_link
from stowplan_agent.weights import Timeline, WeightsEngine
from stowplan_agent.weights.timeline import Stretch
from stowplan_api.placement import ComponentPlacement, GroupPlacement
from stowplan_api.record import Link

LAYERS = 40
LATENTS = {4800: (5, 60, 64), 32760: (21, 60, 104)}
"""Tokens to latent frames, height, width: a token is a patch of 1 x 2 x 2."""
PASSES = {4800: 8, 32760: 3}
Output = torch.Tensor


def build() -> WanTransformer3DModel:
    """Wan 2.2 A14B's denoiser with random bfloat16 weights, on the GPU."""
    with torch.device("meta"):
        model = WanTransformer3DModel(
            num_layers=LAYERS, num_attention_heads=40, attention_head_dim=128, ffn_dim=13824, in_channels=16,
            out_channels=16, text_dim=4096, freq_dim=256, cross_attn_norm=True, qk_norm="rms_norm_across_heads",
        )  # fmt: skip
    rope = type(model.rope)(128, (1, 2, 2), 1024)  # its tables are computed, not weights
    model = model.to(torch.bfloat16).to_empty(device="cuda")
    model.rope = rope.to("cuda")
    generator = torch.Generator("cuda").manual_seed(0)
    for parameter in model.parameters():
        torch.nn.init.normal_(parameter.data, std=0.02, generator=generator)
    return model.requires_grad_(False).eval()


def inputs(tokens: int) -> dict[str, Any]:
    """One pass's inputs, the same every time."""
    generator = torch.Generator("cuda").manual_seed(tokens)

    def noise(*shape: int) -> torch.Tensor:
        return torch.randn(*shape, generator=generator, device="cuda", dtype=torch.bfloat16)

    return {
        "hidden_states": noise(1, 16, *LATENTS[tokens]),
        "timestep": torch.tensor([500], device="cuda"),
        "encoder_hidden_states": noise(1, 512, 4096),
        "return_dict": False,
    }


def steady(run: Callable[[], Output], passes: int) -> tuple[float, Output]:
    """Seconds of a pass, without the first, and the last output, on the host: what is kept is in nobody's peak."""
    output = run()
    start, end = torch.cuda.Event(enable_timing=True), torch.cuda.Event(enable_timing=True)
    start.record()
    for _ in range(passes):
        output = run()
    end.record()
    end.synchronize()
    return start.elapsed_time(end) / 1000 / passes, output.cpu()


def placed(engine: WeightsEngine, resident: int, pinned: bool) -> float:
    """Put the denoiser where the row says; wall seconds of the move."""
    began = time.monotonic()
    locked = LAYERS - resident if pinned else 0
    group = GroupPlacement(name="blocks", resident_layers=resident, slots=2, pinned_layers=(locked,))
    engine.place(
        ComponentPlacement(name="transformer", mode="Layerwise", groups=(group,))
        if resident < LAYERS
        else ComponentPlacement(name="transformer", mode="Resident")
    )
    torch.cuda.synchronize()
    return time.monotonic() - began


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--tokens", type=int, nargs="+", default=[4800, 32760], choices=list(LATENTS))
    parser.add_argument("--resident", type=int, nargs="+", default=[0, 10, 20, 30, 40])
    parser.add_argument("--compile", action="store_true", help="compile each layer")
    parser.add_argument("--pageable", type=int, nargs="*", default=[], help="rows without pins, of this many residents")
    parser.add_argument("--no-group-offload", action="store_true")
    chosen = parser.parse_args()
    accelerator = CudaAccelerator()
    link = measure_link(accelerator, budget_bytes=2 << 30)
    model = build()
    if chosen.compile:
        for layer in model.blocks:
            layer.forward = torch.compile(layer.forward)
    data = {tokens: inputs(tokens) for tokens in chosen.tokens}
    alone: dict[int, tuple[float, Output]] = {}
    with torch.no_grad():
        for tokens in chosen.tokens:
            seconds, output = steady(lambda tokens=tokens: model(**data[tokens])[0], PASSES[tokens])
            alone[tokens] = (seconds, output)
            say(f"unmanaged, {tokens} tokens: {seconds:.4f} s a pass")
    wanted = [(resident, True) for resident in sorted({*chosen.resident, LAYERS}, reverse=True)]
    wanted += [(resident, False) for resident in chosen.pageable]
    rows = managed(model, accelerator, data, alone, wanted, link)
    groups = {} if chosen.no_group_offload else group_offload(model, data, rows)
    document = {
        **heading("streaming"),
        "device": accelerator.product,
        "torch": torch.__version__,
        "compiled": chosen.compile,
        "link": link.to_json(),
        "driverPageableBytesPerSecond": driver_pageable_rate(),
        "allResidentSeconds": {tokens: seconds for tokens, (seconds, _) in alone.items()},
        "rows": rows,
        "groupOffload": groups,
    }
    json.dump(document, sys.stdout, indent=1)


def driver_pageable_rate() -> float:
    """Bytes a second of the driver's own copy of memory that is not pinned: one thread, and the host waits."""
    host, device = torch.ones(256 << 20, dtype=torch.uint8), torch.empty(256 << 20, dtype=torch.uint8, device="cuda")
    best = 0.0
    for _ in range(3):
        torch.cuda.synchronize()
        began = time.monotonic()
        device.copy_(host)
        torch.cuda.synchronize()
        best = max(best, host.nbytes / (time.monotonic() - began))
    return best


def managed(
    model: WanTransformer3DModel,
    accelerator: CudaAccelerator,
    data: dict[int, dict[str, Any]],
    alone: dict[int, tuple[float, Output]],
    wanted: list[tuple[int, bool]],
    link: Link,
) -> list[dict[str, Any]]:
    """One row a token count, resident count and kind of host memory; the model is back on the host afterwards."""
    began = time.monotonic()
    model.to("cpu")
    say(f"to the host in {time.monotonic() - began:.1f} s")
    engine = WeightsEngine(accelerator)
    began = time.monotonic()
    engine.adopt({"transformer": model})
    torch.cuda.empty_cache()
    say(f"adopted in {time.monotonic() - began:.1f} s")
    (layer_bytes, *_), rows = engine.describe()[0].groups[0].layer_bytes, []
    reference: dict[int, Output] = {}
    for resident, pinned in wanted:
        moved = placed(engine, resident, pinned)
        rate = link.pinned_bytes_per_second if pinned else link.pageable_bytes_per_second
        for tokens in data:
            passes = PASSES[tokens]
            engine.timeline = Timeline([Stretch("transformer", passes + 1, passes + 1)])
            accelerator.reset_peaks()
            with torch.no_grad(), engine.request():
                seconds, output = steady(lambda tokens=tokens: model(**data[tokens])[0], passes)
            streamed = (LAYERS - resident) * layer_bytes
            compute = alone[tokens][0]
            bound = max(compute, streamed / rate)
            rows.append(
                {
                    "tokens": tokens,
                    "resident": resident,
                    "pinned": pinned,
                    "seconds": seconds,
                    "boundSeconds": bound,
                    "overBound": seconds / bound,
                    "bitEqual": torch.equal(output, reference.setdefault(tokens, output)),
                    "equalsUnmanaged": torch.equal(output, alone[tokens][1]),
                    "peakBytes": accelerator.counters().peak,
                    "placeSeconds": moved,
                }
            )
            kind = "" if pinned else ", pageable"
            say(f"{resident} resident{kind}, {tokens} tokens: {seconds:.4f} s, {seconds / bound:.3f} of the bound")
    engine.place(ComponentPlacement(name="transformer", mode="Offload", pinned_bytes=(0,)))
    engine.close()
    return rows


def group_offload(
    model: WanTransformer3DModel, data: dict[int, dict[str, Any]], rows: list[dict[str, Any]]
) -> dict[str, Any]:
    """diffusers' own: one block a group, a stream, pinned copies; the peak is that of row 0 or higher."""
    gc.collect()
    torch.cuda.empty_cache()
    apply_group_offloading(
        model, onload_device=torch.device("cuda"), offload_device=torch.device("cpu"), offload_type="block_level",
        num_blocks_per_group=1, use_stream=True, record_stream=True, non_blocking=True,
    )  # fmt: skip
    found: dict[str, Any] = {}
    for tokens in data:
        torch.cuda.reset_peak_memory_stats()
        with torch.no_grad():
            seconds, _ = steady(lambda tokens=tokens: model(**data[tokens])[0], PASSES[tokens])
        peak = torch.cuda.max_memory_allocated()
        ours = next((row for row in rows if (row["tokens"], row["resident"], row["pinned"]) == (tokens, 0, True)), None)
        found[str(tokens)] = {"seconds": seconds, "peakBytes": peak} | (
            {"speedup": seconds / ours["seconds"], "peakRatio": ours["peakBytes"] / peak} if ours else {}
        )
        say(f"group offload, {tokens} tokens: {seconds:.4f} s")
    return found


if __name__ == "__main__":
    main()
