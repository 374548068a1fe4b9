"""How well one watched request predicts every other placement: a real-size Wan 14B pipeline on capped cards, on a GPU.

    python benchmarks/prediction.py --output results/...json [--cards 24 32 48 80] [--frames 17 --steps 6]

One request is watched in the smallest placement, which gives a CalibrationRecord. Then, for cards of several sizes,
`planning.cost` says what a placement takes, and the same request is run in it on a card of that size, twice: alone, and
watched again. Each row of the document has ratios of measured over predicted:

- ``secondsRatio`` of the request, and ``peakRatio`` of device memory, context included;
- ``watchingRatio``: the watched request over the one before it in the same placement;
- ``bitEqual``: whether the output is that of the first watched request.

``intervals`` of a row are the seconds of the watched run, for whoever looks for the cause of a deviation. The document
is written anew after each row. Weights are random and their values do not matter. Needs 44 GiB of device and 90 GiB of
host memory; ``--tiny`` runs the same program on a tiny pipeline and the emulated card, with MiB for GiB.
"""

from __future__ import annotations

import argparse
import gc
import json
import math
import os
import subprocess
import sys
import time
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

# Before torch is there: a card that is nearly full has no room for what the allocator's fixed segments leave over.
os.environ.setdefault("PYTORCH_CUDA_ALLOC_CONF", "expandable_segments:True")

import torch
from diffusers import AutoencoderKLWan, UniPCMultistepScheduler, WanPipeline, WanTransformer3DModel
from transformers import UMT5Config, UMT5EncoderModel

sys.path.insert(0, str(Path(__file__).parent.parent / "examples"))
import tiny_models
from stowplan_agent.accelerators import Accelerator, open_accelerator
from stowplan_agent.accelerators.cuda_memory import ceiling_share
from stowplan_agent.calibration import Machine, Observation, Watch, build_record, measure_link
from stowplan_agent.lifecycle.probe import workload_of
from stowplan_agent.lifecycle.seed import with_pins
from stowplan_agent.lifecycle.session import Session, timeline_of
from stowplan_agent.lifecycle.target import with_whole_pins
from stowplan_agent.pipeline import HostedPipeline
from stowplan_agent.pipeline.deferred import Deferred
from stowplan_agent.planning import cost, seed_placement, solve, with_device_memory
from stowplan_agent.transaction import Measured
from stowplan_agent.weights import Timeline, WeightsEngine
from stowplan_api.diffusion_deployment import Shape
from stowplan_api.placement import ComponentPlacement, GroupPlacement, Placement
from stowplan_api.record import CalibrationRecord, Component, Link, ModelIdentity

HOST_GIB = 90
NOISE = 1 << 26
"""Elements of the random block that weights are cut from: filling 38 GiB then takes seconds."""
BEGAN = time.monotonic()


@dataclass(frozen=True)
class Size:
    """What differs between the real benchmark and its rehearsal."""

    accelerator: str
    unit: int
    cards: tuple[int, ...]
    shape: Shape
    reserve_bytes: int | None
    card_bytes: int


def real(chosen: argparse.Namespace) -> Size:
    shape = Shape(name="video", width=chosen.width, height=chosen.height, frames=chosen.frames, steps=chosen.steps)
    return Size("cuda", 1 << 30, tuple(chosen.cards or (24, 32, 48, 80)), shape, None, 0)


def tiny(chosen: argparse.Namespace) -> Size:
    shape = Shape(name="video", width=64, height=64, frames=5, steps=chosen.steps)
    return Size("emulated", 1 << 20, tuple(chosen.cards or (28, 31, 42, 64)), shape, 1 << 20, 1 << 30)


# --------------------------------------------------------------------------------------------------- the pipeline


def transformer() -> WanTransformer3DModel:
    """Wan 2.2 A14B's denoiser, without memory."""
    return WanTransformer3DModel(
        num_layers=40, num_attention_heads=40, attention_head_dim=128, ffn_dim=13824, in_channels=16,
        out_channels=16, text_dim=4096, freq_dim=256, cross_attn_norm=True, qk_norm="rms_norm_across_heads",
    )  # fmt: skip


def encoder() -> UMT5EncoderModel:
    """UMT5-XXL's encoder."""
    return UMT5EncoderModel(
        UMT5Config(
            vocab_size=256384, d_model=4096, d_kv=64, d_ff=10240, num_heads=64, num_layers=24, dropout_rate=0.0,
            is_gated_act=True, feed_forward_proj="gated-gelu", pad_token_id=0, eos_token_id=1,
        )
    )  # fmt: skip


def real_pipeline() -> WanPipeline:
    """WanPipeline at the size of Wan 2.2 A14B, one expert, on the host: bfloat16, the VAE float32 as Wan asks for."""
    block = torch.randn(NOISE, generator=torch.Generator().manual_seed(0)).to(torch.bfloat16)
    with torch.device("meta"):
        denoiser, text = transformer().to(torch.bfloat16), encoder().to(torch.bfloat16)
    rope = type(denoiser.rope)(128, (1, 2, 2), 1024)  # its tables are computed, not weights
    denoiser.rope = torch.nn.Identity()
    fill(denoiser, block)
    denoiser.rope = rope
    say("denoiser filled")
    fill(text, block)
    say("encoder filled")
    return WanPipeline(
        tokenizer=tiny_models.t5_tokenizer(),
        text_encoder=text.eval(),
        vae=tiny_models.seeded(3, AutoencoderKLWan),
        scheduler=UniPCMultistepScheduler(prediction_type="flow_prediction", use_flow_sigmas=True, flow_shift=3.0),
        transformer=denoiser.eval(),
    )


def fill(module: torch.nn.Module, block: torch.Tensor) -> None:
    """Give a module without memory weights that keep activations finite: pieces of one random block, scaled."""
    start, known = 0, dict[torch.nn.Parameter, torch.nn.Parameter]()
    for owner in module.modules():
        for name, meta in list(owner.named_parameters(recurse=False)):
            if meta in known:  # tied
                owner.register_parameter(name, known[meta])
                continue
            made = torch.empty(meta.shape, dtype=meta.dtype)
            flat = made.view(-1)
            if meta.dim() < 2:
                flat.fill_(0.0 if name == "bias" else 1.0)
            else:
                scale = 1 / math.sqrt(meta.numel() / meta.shape[0])
                for offset in range(0, len(flat), len(block) // 2):
                    piece = flat[offset : offset + len(block) // 2]
                    torch.mul(block[start : start + len(piece)], scale, out=piece)
                    start = (start + 4099) % (len(block) // 2)
            known[meta] = torch.nn.Parameter(made, requires_grad=False)
            owner.register_parameter(name, known[meta])


# ------------------------------------------------------------------------------------------------------ measuring


def record_of(session: Session, size: Size, link: Link) -> tuple[CalibrationRecord, Measured, float]:
    """The record of one watched request in the placement in force, what was measured with it, and wall seconds."""
    began = time.monotonic()
    measured, observations = session.watch(size.shape, link)
    taken = time.monotonic() - began
    accelerator = session.accelerator
    host = HOST_GIB * size.unit
    machine = Machine(
        node="node", device=accelerator.product, capacity_bytes=size.cards[0] * size.unit,
        outside_bytes=accelerator.outside_bytes(), reserve_bytes=size.reserve_bytes,
        pinnable_bytes=host, host_bytes=host,
    )  # fmt: skip
    identity = ModelIdentity(name="wan-14b", pipeline="WanPipeline", fingerprint="random")
    shapes: dict[Any, tuple[Observation, ...]] = {workload_of(size.shape): observations}
    return build_record(identity, shapes, session.engine.describe(), machine, link), measured, taken


def wanted(record: CalibrationRecord, size: Size, card: int) -> Iterator[tuple[str, Placement]]:
    """Placements to try on a card: the planner's, and some that it would not choose."""
    parts = record.components
    plan = solve(record)
    if plan.placement is not None:
        yield "plan", with_whole_pins(record, plan.placement)
    first, second, third, *_ = size.cards
    if card == first:
        yield "smallest", with_pins(seed_placement(parts, ranks=1), parts, HOST_GIB << 30)
        yield "streamed, pinned", Placement(components=tuple(layerwise(part, 0.0) for part in parts))
    elif card == second:
        entries = tuple(layerwise(part, 0.25, policy="Leading", lifetime="Forward", slots=3) for part in parts)
        yield "a quarter, leading, forward", Placement(components=entries)
    elif card == third:
        pins = {part.name: part.total_bytes() if index % 2 else 0 for index, part in enumerate(parts)}
        entries = tuple(offload(part, pins[part.name], prefetch=True) for part in parts)
        yield "visiting, some pinned", Placement(components=entries)
        yield "pageable", seed_placement(parts, ranks=1)
        yield "half, half pinned", Placement(components=tuple(layerwise(part, 0.5, pinned=0.5) for part in parts))
    elif card == size.cards[-1]:
        yield "most, three slots", Placement(components=tuple(layerwise(part, 0.75, slots=3) for part in parts))
        yield "resident", Placement(components=tuple(ComponentPlacement(name=p.name, mode="Resident") for p in parts))


def offload(part: Component, pinned: int, *, prefetch: bool = False) -> ComponentPlacement:
    return ComponentPlacement(name=part.name, mode="Offload", prefetch=prefetch, pinned_bytes=(pinned,))


def layerwise(
    part: Component, share: float, *, pinned: float = 1.0, lifetime: Any = "Permanent", **fields: Any
) -> ComponentPlacement:
    """A share of each group's layers resident, a share of the rest pinned; Offload, pinned, where there is no group."""
    if not part.groups:
        return offload(part, part.total_bytes())
    groups = []
    for group in part.groups:
        kept = int(share * len(group.layer_bytes))
        copied = len(group.layer_bytes) - (0 if lifetime == "Forward" else kept)
        groups.append(
            GroupPlacement(
                name=group.name,
                resident_layers=kept,
                lifetime=lifetime,
                pinned_layers=(int(pinned * copied),),
                **({"slots": 2} | fields),
            )
        )
    return ComponentPlacement(name=part.name, mode="Layerwise", loose_lifetime=lifetime, groups=tuple(groups))


def watched(session: Session, shape: Shape, record: CalibrationRecord) -> tuple[Measured, list[dict[str, Any]]]:
    """The request once more under a watch, with the timeline of the record; and seconds and activations of intervals.

    Seconds are from the end of the interval before, so that they hold what an interval waited for.
    """
    accelerator = session.accelerator
    watch = Watch(accelerator, lambda: session.engine.ledger.streamed_bytes)
    session.engine.observer = watch
    watch.begin()
    try:
        measured = session.measure(shape, timeline_of(record, shape))
    finally:
        session.engine.observer = None
    watch.finish()
    accelerator.synchronize()
    found, before = [], watch.intervals[0].start
    for interval in watch.intervals:
        waits = sum(accelerator.elapsed(start, end) for start, end in interval.waits)
        found.append(
            {
                "component": interval.component,
                "entry": interval.entry,
                "seconds": accelerator.elapsed(before, interval.end),
                "waitSeconds": waits,
                "activationBytes": interval.activation_bytes,
            }
        )
        before = interval.end
    return measured, found


def row(session: Session, size: Size, record: CalibrationRecord, name: str, placement: Placement, digest: str) -> Any:
    """Predict, place, measure; None where the placement does not fit the card."""
    predicted = cost(record, placement)
    card = record.ranks[0].capacity_bytes
    if not predicted.feasible:
        say(f"{card // size.unit}: {name} does not fit: {predicted.violations[0].message}")
        return None
    session.accelerator.empty_cache()
    began = time.monotonic()
    for entry in placement.components:  # what leaves, leaves first
        if entry.mode != "Resident":
            session.engine.place(entry)
    for entry in placement.components:
        session.engine.place(entry)
    session.engine.commit()
    session.accelerator.synchronize()
    placed = time.monotonic() - began
    session.engine.check()
    # The allocator takes its memory from the driver in the first request of a placement, as WarmAgain does.
    session.measure(size.shape.model_copy(update={"steps": 1}), Timeline())
    measured = session.measure(size.shape, timeline_of(record, size.shape))
    again, intervals = watched(session, size.shape, record)
    assert measured.seconds is not None and again.seconds is not None
    peak = max(ranks[0] for ranks in predicted.device_bytes)
    say(
        f"{card // size.unit}: {name}: {measured.seconds:.3f} s, {measured.seconds / predicted.seconds:.4f} of the "
        f"prediction; peak {measured.peak_bytes / size.unit:.2f}, {measured.peak_bytes / peak:.4f} of it"
    )
    return {
        "cardBytes": card,
        "name": name,
        "predictedSeconds": predicted.seconds,
        "measuredSeconds": measured.seconds,
        "secondsRatio": measured.seconds / predicted.seconds,
        "predictedPeakBytes": peak,
        "measuredPeakBytes": measured.peak_bytes,
        "peakRatio": measured.peak_bytes / peak,
        "reservedPeakBytes": measured.reserved_peak_bytes,
        "watchedSeconds": again.seconds,
        "watchingRatio": again.seconds / measured.seconds,
        "digests": [measured.digest, again.digest],
        "bitEqual": measured.digest == digest and again.digest == digest,
        "placeSeconds": placed,
        "intervals": intervals,
        "deviceBytes": [ranks[0] for ranks in predicted.device_bytes],
        "placement": placement.to_json(),
    }


def cap(accelerator: Accelerator, card_bytes: int) -> None:
    """Let torch's allocator take no more than a card of this size would give, as `CudaMemory` does at a start."""
    gc.collect()
    accelerator.empty_cache()
    if accelerator.name == "cuda":
        total = torch.cuda.get_device_properties(accelerator.device).total_memory
        share = ceiling_share(total, card_bytes, accelerator.outside_bytes())
        torch.cuda.set_per_process_memory_fraction(share, accelerator.device)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--output", type=Path, required=True, help="where the document is written, after each row")
    parser.add_argument("--cards", type=int, nargs="+", help="GiB, ascending, at least three")
    parser.add_argument("--width", type=int, default=832)
    parser.add_argument("--height", type=int, default=480)
    parser.add_argument("--frames", type=int, default=17)
    parser.add_argument("--steps", type=int, default=6)
    parser.add_argument("--rows", nargs="+", help="names of the placements to try; all of them by default")
    parser.add_argument("--tiny", action="store_true", help="a rehearsal on the emulated card")
    chosen = parser.parse_args()
    size = (tiny if chosen.tiny else real)(chosen)
    accelerator = open_accelerator(size.accelerator, ceiling_bytes=size.card_bytes or None)
    say("accelerator open")
    hosted = HostedPipeline(tiny_models.tiny_wan() if chosen.tiny else real_pipeline(), accelerator.device, Deferred())
    say("pipeline built")
    cap(accelerator, size.cards[0] * size.unit)
    engine = WeightsEngine(accelerator)
    engine.adopt(hosted.modules(), lambda parts: with_pins(seed_placement(parts, ranks=1), parts, HOST_GIB * size.unit))
    gc.collect()
    say("adopted")
    began = time.monotonic()
    link = measure_link(accelerator, budget_bytes=size.unit << 1)
    linked = time.monotonic() - began
    say(f"link: {link}")
    session = Session(accelerator, hosted, engine)
    session.measure(size.shape.model_copy(update={"steps": 2}), Timeline())
    say("warm")
    record, reference, taken = record_of(session, size, link)
    say(f"watched in {taken:.1f} s")
    document: dict[str, Any] = {
        "benchmark": "prediction",
        "date": datetime.now(UTC).strftime("%Y-%m-%d"),
        "device": accelerator.product,
        "commit": commit(),
        "torch": torch.__version__,
        "linkSeconds": linked,
        "watchedRequestSeconds": taken,
        "record": record.to_json(),
        "rows": [],
    }
    tried: set[tuple[int, str]] = set()
    for card in size.cards:
        cap(accelerator, card * size.unit)
        priced = with_device_memory(record, card * size.unit)
        for name, placement in wanted(priced, size, card):
            if (card, text := placement.model_dump_json()) in tried or (chosen.rows and name not in chosen.rows):
                continue
            tried.add((card, text))
            try:
                found = row(session, size, priced, name, placement, reference.digest)
            except torch.OutOfMemoryError as error:  # a prediction that was wrong: a finding, and the others go on
                say(f"{card}: {name}: {error}")
                document.setdefault("failed", []).append({"card": card, "name": name, "error": str(error)})
                continue
            if found is not None:
                document["rows"].append(found)
            chosen.output.write_text(json.dumps(document | summary(document["rows"]), indent=1))
    print(json.dumps(summary(document["rows"]), indent=1))
    engine.close()
    accelerator.close()


def summary(rows: list[dict[str, Any]]) -> dict[str, Any]:
    """The worst of all rows, against the bars of 3 %, 2 % and 1 %."""
    if not rows:
        return {}
    return {
        "worstSeconds": max(abs(one["secondsRatio"] - 1) for one in rows),
        "worstPeak": max(abs(one["peakRatio"] - 1) for one in rows),
        "meanWatching": sum(one["watchingRatio"] for one in rows) / len(rows) - 1,
        "allBitEqual": all(one["bitEqual"] for one in rows),
    }


def commit() -> str:
    """The commit that is measured, for the result."""
    done = subprocess.run(["git", "rev-parse", "--short", "HEAD"], capture_output=True, text=True, check=False)
    return done.stdout.strip() or "unknown"


def say(text: str) -> None:
    """Progress, for whoever waits."""
    print(f"{time.monotonic() - BEGAN:6.1f} s  {text}", file=sys.stderr, flush=True)


if __name__ == "__main__":
    main()
