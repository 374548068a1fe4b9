"""The networks of a checkpoint as their libraries would load them, without a single weight.

Names in files are not always names in modules, a class may keep some of its modules in float32, tables may be tied, and
buffers that are computed are in no file. All of that is decided by the code of diffusers and transformers, so this
room does not tell it again: it lets their own loaders load tensors of the files' names, shapes and dtypes on torch's
meta device, where a tensor has no bytes. What comes out has every name, dtype, tie and buffer of the loaded module.

Nothing here is by name of a model: a class is looked up where ``model_index.json`` says it is.
"""

from __future__ import annotations

import contextlib
import importlib
import io
import logging
import warnings
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any, Final

import torch

from stowplan_agent.inventory.checkpoint import CheckpointComponent
from stowplan_agent.inventory.tensors import TORCH_DTYPES, TensorInfo

LIBRARIES: Final = ("diffusers", "transformers")
ON_META: Final = {"": "meta"}
"""The device map that puts all of a model there."""


@dataclass(frozen=True)
class Skeleton:
    """A component as loaded, on the meta device; buffers that are computed may be real."""

    module: torch.nn.Module
    missing: tuple[str, ...]
    """Weights that the class has and the files have not."""
    unused: tuple[str, ...]
    """Tensors, by their names in the files, that the class does not take."""


def build_skeleton(part: CheckpointComponent, dtype: str) -> Skeleton:
    """The component as loaded in ``dtype`` (torch's name).

    Raises whatever its library raises for a config or tensors that do not suit its class, and `LookupError` for a class
    that neither library loads.
    """
    kind = _class_of(part)
    from diffusers import ModelMixin
    from transformers import PreTrainedModel

    with _silence():
        if issubclass(kind, PreTrainedModel):
            return _of_transformers(kind, part, getattr(torch, dtype))
        if issubclass(kind, ModelMixin):
            return _of_diffusers(kind, part, getattr(torch, dtype))
    raise LookupError(f"{part.class_name} is no model class of diffusers or transformers")


def _class_of(part: CheckpointComponent) -> type[Any]:
    """The class where the index says it is: in a library, or among the parts of one of diffusers' own pipelines.

    Nothing else is imported, for an index is a file from anywhere.
    """
    module = part.library if part.library in LIBRARIES else f"diffusers.pipelines.{part.library}"
    with contextlib.suppress(ImportError):
        kind = getattr(importlib.import_module(module), part.class_name, None)
        if isinstance(kind, type):
            return kind
    raise LookupError(f"{module} has no class {part.class_name}")


def _of_transformers(kind: Any, part: CheckpointComponent, dtype: torch.dtype) -> Skeleton:
    config = kind.config_class.from_dict(dict(part.config))
    model, told = kind.from_pretrained(
        None,
        config=config,
        state_dict=_on_meta(part.tensors),
        dtype=dtype,
        device_map=ON_META,
        output_loading_info=True,
    )
    return Skeleton(model, tuple(sorted(told["missing_keys"])), tuple(sorted(told["unexpected_keys"])))


def _of_diffusers(kind: Any, part: CheckpointComponent, dtype: torch.dtype) -> Skeleton:
    """The steps of ``ModelMixin.from_pretrained`` (models/modeling_utils.py), which takes no state dict."""
    from accelerate import init_empty_weights
    from diffusers.models.model_loading_utils import load_model_dict_into_meta
    from diffusers.models.modeling_utils import no_init_weights

    before = kind._set_default_torch_dtype(dtype)
    try:
        with no_init_weights(), init_empty_weights():
            model: Any = kind.from_config(dict(part.config))
    finally:
        torch.set_default_dtype(before)
    stored = _on_meta(part.tensors)
    if len(part.headers) == 1:
        model._fix_state_dict_keys_on_load(stored)
    kept = kind._keep_in_fp32_modules or []
    load_model_dict_into_meta(
        model,
        stored,
        dtype=dtype,
        device_map=ON_META,
        keep_in_fp32_modules=kept if isinstance(kept, list) else [kept],
    )
    taken = model.state_dict().keys()
    return Skeleton(
        model,
        # a saved buffer that is not there keeps the value that its module computes
        tuple(name for name, _ in model.named_parameters() if name not in stored),
        tuple(name for name in stored if name not in taken),
    )


def _on_meta(tensors: Mapping[str, TensorInfo]) -> dict[str, torch.Tensor]:
    dtypes = {name: getattr(torch, torch_name) for torch_name, name in TORCH_DTYPES.items()}
    return {name: torch.empty(info.shape, dtype=dtypes[info.dtype], device="meta") for name, info in tensors.items()}


@contextlib.contextmanager
def _silence() -> Iterator[None]:
    """Neither progress bars nor what libraries say of settings: the load that counts comes later, and says it."""
    quiet = [logging.getLogger(name) for name in ("transformers", "diffusers", "accelerate")]
    levels = [logger.level for logger in quiet]
    for logger in quiet:
        logger.setLevel(logging.CRITICAL)
    try:
        with warnings.catch_warnings(), contextlib.redirect_stderr(io.StringIO()):
            warnings.simplefilter("ignore")
            yield
    finally:
        for logger, level in zip(quiet, levels, strict=True):
            logger.setLevel(level)
