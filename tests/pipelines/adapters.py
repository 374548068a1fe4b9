"""Adapters (LoRA) for the tiny pipelines, made with PEFT and written as diffusers writes them."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import torch

ATTENTION = ["to_q", "to_k", "to_v", "to_out.0"]
CLIP_ATTENTION = ["q_proj", "k_proj", "v_proj", "out_proj"]


def denoiser(pipe: Any) -> str:
    """The component that an adapter of the pipeline is for."""
    return "unet" if "unet" in pipe.components else "transformer"


def write_adapter(pipe: Any, folder: Path, *, rank: int = 4, layers: list[int] | None = None, seed: int = 11) -> Path:
    """A random adapter on all attention of the denoiser, or of some of its layers. ``pipe`` is spoilt by it."""
    from peft import LoraConfig, get_peft_model_state_dict

    torch.manual_seed(seed)
    name = denoiser(pipe)
    model = getattr(pipe, name)
    targets = ATTENTION if layers is None else rf".*blocks\.({'|'.join(map(str, layers))})\..*({'|'.join(ATTENTION)})"
    model.add_adapter(LoraConfig(r=rank, target_modules=targets, init_lora_weights=False))
    pipe.save_lora_weights(folder, **{f"{name}_lora_layers": get_peft_model_state_dict(model)})
    return folder


def adapt_encoder(encoder: torch.nn.Module, seed: int = 12) -> None:
    """A random adapter on all attention of a CLIP encoder, put there by PEFT itself: transformers may want a newer."""
    from peft import LoraConfig, inject_adapter_in_model

    torch.manual_seed(seed)
    inject_adapter_in_model(LoraConfig(r=4, target_modules=CLIP_ATTENTION, init_lora_weights=False), encoder)


def tuners(model: torch.nn.Module) -> list[Any]:
    """The layers that PEFT has wrapped."""
    from peft.tuners.tuners_utils import BaseTunerLayer

    return [module for module in model.modules() if isinstance(module, BaseTunerLayer)]


def align(pipe: Any) -> None:
    """What `tiny_requests.load` does for a whole pipeline: adapters were read at any offset too."""
    for part in pipe.components.values():
        for tensor in part.parameters() if isinstance(part, torch.nn.Module) else ():
            tensor.data = tensor.data.clone()
