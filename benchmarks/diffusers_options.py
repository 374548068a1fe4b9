"""diffusers' own ways to run a pipeline on a card that is too small for it, and what one request takes in each.

Each option gets what helps it most: streams, recorded streams, one block a group, and host memory that is locked
beforehand (registered with the driver, which torch and diffusers take for pinned, so that nothing is copied for it).
An option that fits a card runs in the same way on a larger one, so it is measured on the smallest that it fits, and
again only where that is close to what it is compared with.
"""

from __future__ import annotations

import gc
import hashlib
import traceback
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from typing import Any

import torch
from diffusers import DiffusionPipeline
from diffusers.hooks import HookRegistry, apply_group_offloading

from capped_card import one_step
from result import say
from stowplan_agent.accelerators import Accelerator
from stowplan_agent.lifecycle.session import request_of
from stowplan_agent.pipeline.hosted import as_frames
from stowplan_api.diffusion_deployment import Shape

GROUP_HOOKS = ("group_offloading", "layer_execution_tracker", "lazy_prefetch_group_offloading")


@dataclass(frozen=True)
class Option:
    """A way to run, and how it is switched on."""

    name: str
    enable: Callable[[Any, torch.device], None]
    warm: bool = True
    """Whether it is faster from the second request on: diffusers learns the order of groups in the first."""


def group_offload(kind: str, vae_resident: bool) -> Callable[[Any, torch.device], None]:
    """Groups with a stream: blocks of the denoiser, or leaves; the encoder has no blocks at its root, so leaves."""

    def enable(pipeline: Any, device: torch.device) -> None:
        streams = device.type == "cuda"
        fields: dict[str, Any] = {
            "onload_device": device, "offload_device": torch.device("cpu"), "use_stream": streams,
            "record_stream": streams, "non_blocking": streams, "low_cpu_mem_usage": False,
        }  # fmt: skip
        of_kind = fields | {"offload_type": kind, "num_blocks_per_group": 1 if kind == "block_level" else None}
        apply_group_offloading(pipeline.transformer, **of_kind)
        apply_group_offloading(pipeline.text_encoder, **fields, offload_type="leaf_level")
        if vae_resident:
            pipeline.vae.to(device)
        else:
            apply_group_offloading(pipeline.vae, **fields, offload_type="leaf_level")

    return enable


GROUP_OFFLOAD = (
    Option("group offload, blocks, stream, VAE on the device", group_offload("block_level", vae_resident=True)),
    Option("group offload, leaves, stream, VAE on the device", group_offload("leaf_level", vae_resident=True)),
    Option("group offload, blocks, stream", group_offload("block_level", vae_resident=False)),
)
MODEL_OFFLOAD = Option("model offload", lambda pipe, device: pipe.enable_model_cpu_offload(device=device), warm=False)
SEQUENTIAL = Option(
    "sequential offload", lambda pipe, device: pipe.enable_sequential_cpu_offload(device=device), warm=False
)
WHOLE = Option("no offload", lambda pipe, device: pipe.to(device))


class Plain:
    """The pipeline without the engine, its weights in locked host memory."""

    def __init__(
        self, pipeline: DiffusionPipeline, kind: type[DiffusionPipeline], accelerator: Accelerator, prompt: str
    ) -> None:
        """Of weights in host memory that nobody manages; ``prompt`` is that of the requests to compare with."""
        self.prompt = prompt
        self.pipeline: Any = kind(**pipeline.components)
        self.pipeline.set_progress_bar_config(disable=True)
        self.accelerator = accelerator
        self._modules = [part for part in pipeline.components.values() if isinstance(part, torch.nn.Module)]
        self._homes = [
            (home, name, tensor, tensor.data)
            for part in self._modules
            for module in part.modules()
            for home in (module._parameters, module._buffers)
            for name, tensor in home.items()
            if tensor is not None
        ]
        self._locked = list(self._lock())

    def _lock(self) -> Iterator[torch.Tensor]:
        seen: set[int] = set()
        for *_, data in self._homes:
            storage = data.untyped_storage()
            if storage.nbytes() and storage.data_ptr() not in seen:
                seen.add(storage.data_ptr())
                memory = torch.empty(0, dtype=torch.uint8).set_(storage)
                if self.accelerator.pin(memory):
                    yield memory

    @property
    def locked_bytes(self) -> int:
        """Host memory that is locked for the options."""
        return sum(memory.nbytes for memory in self._locked)

    def close(self) -> None:
        """Unlock the host memory."""
        self.accelerator.synchronize()
        for memory in self._locked:
            self.accelerator.unpin(memory)
        self._locked = []

    @contextmanager
    def running(self, option: Option) -> Iterator[None]:
        """Within it, the option is on; afterwards all weights are in host memory, as they were."""
        try:
            option.enable(self.pipeline, self.accelerator.device)
            yield
        finally:
            self.pipeline.remove_all_hooks()
            for part in self._modules:
                registry = HookRegistry.check_if_exists_or_initialize(part)
                for name in GROUP_HOOKS:
                    registry.remove_hook(name, recurse=True)
            self.accelerator.synchronize()
            for home, name, tensor, data in self._homes:
                tensor.data = data
                home[name] = tensor
            gc.collect()
            self.accelerator.empty_cache()

    def request(self, shape: Shape) -> dict[str, Any]:
        """Seconds, peak bytes and digest of one request. Raises torch.OutOfMemoryError."""
        accelerator = self.accelerator
        gc.collect()
        accelerator.reset_peaks()
        start = accelerator.record()
        with torch.no_grad(), accelerator.running():
            arguments = replace(request_of(shape), prompt=self.prompt).arguments(type(self.pipeline).__call__)
            frames = as_frames(self.pipeline(**arguments).frames)
        end = accelerator.record()
        accelerator.synchronize()
        counters, outside = accelerator.counters(), accelerator.outside_bytes()
        return {
            "seconds": accelerator.elapsed(start, end),
            "peakBytes": counters.peak + outside,
            "reservedPeakBytes": counters.reserved_peak + outside,
            "digest": hashlib.sha256(frames.tobytes()).hexdigest(),
        }

    def measured(self, option: Option, shape: Shape, close_to: float | None) -> dict[str, Any]:
        """One row: what a request takes, or why there is none. A second is run where the first is within 10 %."""
        try:
            with self.running(option):
                if option.warm:
                    self.request(one_step(shape))
                row = self.request(shape)
                if option.warm and close_to is not None and row["seconds"] < 1.1 * close_to:
                    row["seconds"] = min(row["seconds"], self.request(shape)["seconds"])
        except torch.OutOfMemoryError as error:
            row = {"outcome": "out of memory", "error": str(error).split("\n")[0]}
        except Exception as error:  # another version of the library may refuse what this one runs: no row, no claim
            traceback.clear_frames(error.__traceback__)
            row = {"outcome": "error", "error": f"{type(error).__name__}: {error}"}
        else:
            row["outcome"] = "ran"
        say(f"{option.name}: {row.get('seconds') or row['error']}")
        return {"name": option.name} | row
