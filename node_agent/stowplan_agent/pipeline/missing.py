"""Weights that a checkpoint lacks and that transformers makes up.

diffusers leaves such a weight on the meta device, where the engine finds it. transformers fills it with random numbers
and says so in a warning: two pods of one checkpoint would then serve different pictures, each bit-equal to itself. What
it found missing is known to the function that words that warning, and to nothing that a loaded model keeps.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any


@contextmanager
def missing_weights() -> Iterator[dict[str, list[str]]]:
    """Collect, by class, the names of the weights that models loaded within lacked. One load at a time."""
    from transformers import modeling_utils

    found: dict[str, list[str]] = {}
    report = modeling_utils.log_state_dict_report

    def heard(*args: Any, model: Any, loading_info: Any, **kwargs: Any) -> Any:
        if loading_info.missing_keys:
            found[type(model).__name__] = sorted(loading_info.missing_keys)
        return report(*args, model=model, loading_info=loading_info, **kwargs)

    modeling_utils.log_state_dict_report = heard
    try:
        yield found
    finally:
        modeling_utils.log_state_dict_report = report
