"""Loading, fusing and taking away adapters (LoRA) of a pipeline whose weights somebody else owns.

diffusers changes modules and weights behind such calls, wherever the weights happen to be. So each of them is wrapped,
on the pipeline's instance, into a context of the owner's, whoever calls it. An exception leaves the pipeline's own
notes about adapters as they were; modules and weights are up to the context.
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from contextlib import AbstractContextManager
from typing import Any, Final

CALLS: Final = (
    "load_lora_weights",
    "unload_lora_weights",
    "fuse_lora",
    "unfuse_lora",
    "delete_adapters",
    "disable_lora",  # a fused adapter that is switched off is taken out of the weights in the next pass
    "enable_lora_hotswap",
    "set_lora_device",
)
"""What may change a tensor. ``set_adapters`` and ``enable_lora`` set numbers only."""

Rewriting = Callable[[], AbstractContextManager[object]]


def rewrite_within(pipeline: Any, rewriting: Rewriting) -> None:
    """From now on those calls that the pipeline has happen within ``rewriting()``; calls inside calls in the same."""
    inside = False

    def wrapped(original: Callable[..., Any]) -> Callable[..., Any]:
        @functools.wraps(original)
        def call(*args: Any, **kwargs: Any) -> Any:
            nonlocal inside
            if inside:
                return original(*args, **kwargs)
            own = vars(pipeline)
            before = dict(own)
            inside = True
            try:
                with rewriting():
                    return original(*args, **kwargs)
            except BaseException:
                own.clear()
                own.update(before)
                raise
            finally:
                inside = False

        return call

    for name in CALLS:
        if callable(original := getattr(pipeline, name, None)):
            vars(pipeline)[name] = wrapped(original)
