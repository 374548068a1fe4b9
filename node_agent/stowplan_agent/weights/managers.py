"""Which engine manages a module: one at a time, for two movers of one weight would undo each other's work.

An engine is known by what its hooks report to: that lives for as long as a hook does, even if the engine is forgotten.
"""

from __future__ import annotations

import weakref
from typing import Any, Final

import torch

from stowplan_agent.weights.adoption import AdoptionError

_MANAGERS: Final[weakref.WeakKeyDictionary[torch.nn.Module, weakref.ref[Any]]] = weakref.WeakKeyDictionary()


def check_manager(name: str, module: torch.nn.Module, engine: object) -> None:
    """Refuse a module that another engine manages. Raises `AdoptionError`."""
    reference = _MANAGERS.get(module)
    manager = reference() if reference is not None else None
    if manager not in (None, engine):
        raise AdoptionError(f"component {name} is managed by another engine; drop it there, or load it once more")


def set_manager(module: torch.nn.Module, engine: object | None) -> None:
    """From here on this engine does, or none."""
    if engine is None:
        _MANAGERS.pop(module, None)
    else:
        _MANAGERS[module] = weakref.ref(engine)
