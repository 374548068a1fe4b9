"""What a module tree is made of, remembered so that it can be put back: submodules, tensors' names, plain attributes.

Adapters are loaded by wrapping modules and noted in dictionaries and lists (PEFT: ``lora_A``, ``merged_adapters``,
``scaling``). Putting the tree back undoes all of that without knowing any of it. Containers are refilled and not
exchanged, since handles of hooks refer to them. Bytes are not remembered here: tensors keep what is in them.
"""

from __future__ import annotations

from collections import OrderedDict
from typing import Any

import torch

_CONTAINERS = (dict, OrderedDict, list, set)


class Structure:
    """The attributes of every module of a tree, at one moment."""

    def __init__(self, root: torch.nn.Module) -> None:
        """Looks at modules; copies no tensor."""
        self._modules = [(module, dict(vars(module))) for module in root.modules()]
        self._contents: list[tuple[Any, Any]] = []
        for _, attributes in self._modules:
            for value in attributes.values():
                if type(value) in _CONTAINERS:
                    self._contents.append((value, value.copy()))

    def restore(self) -> None:
        """Every module of the tree has the attributes again that it had then."""
        for container, contents in self._contents:
            container.clear()
            if isinstance(container, list):
                container.extend(contents)
            else:
                container.update(contents)
        for module, attributes in self._modules:
            own = vars(module)
            own.clear()
            own.update(attributes)
