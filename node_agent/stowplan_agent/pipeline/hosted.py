"""Loading a diffusers pipeline and running requests on it.

The checkpoint is opened by diffusers itself, on the CPU, in plain tensors, and hardly a byte of it is read: tensors are
views of the mapped files, or will be converted from them (`deferred`). The weights engine then takes them over, reading
each to where it belongs. What the host holds of them until then is said in `lazy_loading`; it does not grow with them.
The device on which inputs are made is stated by the agent: the pipeline's own answer (``pipe.device``) is that of some
parameter, and parameters of a streamed layer are at times on the host
(https://github.com/vladmandic/sdnext/issues/5018).
"""

from __future__ import annotations

import contextlib
import io
import logging
import traceback
import warnings
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import torch

from stowplan_agent.accelerators.shortage import is_shortage
from stowplan_agent.pipeline.adapters import Rewriting, rewrite_within
from stowplan_agent.pipeline.completeness import LoadError, missing_weights
from stowplan_agent.pipeline.deferred import Deferred
from stowplan_agent.pipeline.lazy_loading import deferred_conversions
from stowplan_agent.pipeline.prompts import Prompts
from stowplan_agent.pipeline.request import PipelineRequest, Stopped, needs_image

Frames = npt.NDArray[np.float32]
"""Frames, height, width, channels; values from 0 to 1."""


class HostedPipeline:
    """A pipeline, its networks, and one way to call it."""

    def __init__(self, pipeline: Any, device: torch.device, deferred: Deferred) -> None:
        """Hosts a loaded pipeline; ``device`` is where its inputs are made."""
        self.deferred = deferred
        """Conversions of weights that were promised while loading. Whoever takes a tensor over must ask here first."""
        self.prompts = Prompts.of(pipeline)
        self.needs_image = needs_image(type(pipeline).__call__)
        """Whether it makes nothing without an image to begin with."""
        self._pipeline = pipeline
        _state_device(pipeline, device)
        with contextlib.suppress(AttributeError):
            pipeline.set_progress_bar_config(disable=True)

    @classmethod
    def load(cls, path: Path, dtype: str, device: torch.device) -> HostedPipeline:
        """Load a diffusers-layout folder on the CPU. Raises `LoadError` in one sentence."""
        from diffusers import DiffusionPipeline

        try:
            with (
                missing_weights() as missing,
                deferred_conversions() as deferred,
                warnings.catch_warnings(),
                contextlib.redirect_stderr(io.StringIO()),
            ):
                warnings.simplefilter("ignore")
                logging.getLogger("transformers").setLevel(logging.ERROR)
                pipeline = DiffusionPipeline.from_pretrained(
                    str(path), dtype=getattr(torch, dtype), local_files_only=True, use_safetensors=True
                )
        except Exception as error:  # diffusers raises what its dependencies raise
            first = next((line for line in str(error).splitlines() if line.strip()), type(error).__name__)
            raise LoadError(f"{path}: diffusers cannot load this checkpoint: {first}") from error
        for name, names in missing.items():
            raise LoadError(
                f"{path}: {len(names)} weights of the {name} are not in the checkpoint, {names[0]} among them, and "
                "transformers would make them up; download the checkpoint again"
            )
        return cls(pipeline, device, deferred)

    def modules(self) -> dict[str, torch.nn.Module]:
        """Its networks by name, found by type."""
        return {name: value for name, value in self._pipeline.components.items() if isinstance(value, torch.nn.Module)}

    def rewrite_within(self, rewriting: Rewriting) -> None:
        """Let adapters be loaded, fused and taken away within ``rewriting()``: the weights have an owner."""
        rewrite_within(self._pipeline, rewriting)

    def run(self, request: PipelineRequest, *, stop: Callable[[], bool] | None = None) -> Frames:
        """Run one request. Raises torch.OutOfMemoryError, holding none of the request's memory, and `Stopped`."""
        self.deferred.settle_all()  # whatever nobody has taken over
        measuring = request.prompt is None
        if measuring:
            request = replace(request, prompt=self.prompts.probing)
        try:
            with torch.no_grad(), _no_word_of_long_prompts() if measuring else contextlib.nullcontext():
                output = self._pipeline(**request.arguments(type(self._pipeline).__call__, stop=stop))
        except BaseException as error:
            self._forget()
            short = is_shortage(error)
            if not short and not isinstance(error, Stopped):
                raise
            # The traceback's frames hold the request's tensors; without them its memory is free at once. Cleared frames
            # still hold their functions, and these what they close over (torch's calls of modules: their inputs).
            traceback.clear_frames(error.__traceback__)
            error.__traceback__ = error.__context__ = None
            raise (torch.OutOfMemoryError(str(error)) if short else type(error)(*error.args)) from None
        return as_frames(getattr(output, "frames", None) if hasattr(output, "frames") else output.images)

    def _forget(self) -> None:
        """Drop what a broken-off request left in its modules: causal VAEs keep features of earlier frames in one."""
        for module in self.modules().values():
            clear = getattr(module, "clear_cache", None)
            if callable(clear):
                clear()


@contextlib.contextmanager
def _no_word_of_long_prompts() -> Iterator[None]:
    """Encoders that cut the longest prompt warn of each word that they leave out."""
    logger = logging.getLogger("diffusers")
    level = logger.level
    logger.setLevel(logging.ERROR)
    try:
        yield
    finally:
        logger.setLevel(level)


def as_frames(output: Any) -> Frames:
    """A pipeline's output of one request as frames. Raises `TypeError` for more than one video."""
    array = np.asarray(output, dtype=np.float32)
    if array.ndim == 5:
        if array.shape[0] != 1:
            raise TypeError(f"the pipeline made {array.shape[0]} videos for one request")
        array = array[0]
    return array


def _state_device(pipeline: Any, device: torch.device) -> None:
    """Let the pipeline answer ``device`` when asked where to make inputs."""
    kind = type(pipeline)
    stated = property(lambda _self: device)
    pipeline.__class__ = type(kind.__name__, (kind,), {"_execution_device": stated, "device": stated})
