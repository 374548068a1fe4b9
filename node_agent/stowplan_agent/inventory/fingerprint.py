"""A name for what a checkpoint is, from headers and configs alone.

Two checkpoints with one fingerprint have the same components, tensors and settings, so a plan for one fits the other
and is then validated there. Their bytes may differ: it must never stand for a digest of weights (PLANNING.md, 1).
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from typing import Any, Final

from stowplan_agent.inventory.checkpoint import Checkpoint

UNSTABLE: Final = frozenset({"_diffusers_version", "transformers_version", "_name_or_path", "_commit_hash"})
"""Which program wrote a config, and where it lay then: changes with every saving, and changes no plan."""


def fingerprint(checkpoint: Checkpoint) -> str:
    """``sha256:`` and the digest over pipeline, settings, configs and each tensor's name, dtype and shape.

    How tensors are spread over shard files does not count, nor do the file names, nor the folder's.
    """
    content = {
        "pipeline": checkpoint.pipeline,
        "settings": _stable(checkpoint.settings),
        "components": {
            part.name: {
                "class": [part.library, part.class_name],
                "configs": _stable(part.configs),
                "tensors": {name: [info.dtype, list(info.shape)] for name, info in part.tensors.items()},
            }
            for part in checkpoint.components
        },
    }
    text = json.dumps(content, sort_keys=True, separators=(",", ":"))
    return "sha256:" + hashlib.sha256(text.encode()).hexdigest()


def _stable(value: Any) -> Any:
    if isinstance(value, Mapping):
        return {key: _stable(inner) for key, inner in value.items() if key not in UNSTABLE}
    return [_stable(inner) for inner in value] if isinstance(value, list) else value
