"""Read a diffusers checkpoint folder: which components it has, their configs, and the headers of their weights.

This is all that can be known before a weight is touched, and it is enough to predict memory and to refuse what cannot
work. It needs neither torch nor diffusers, so ``stowplan inventory`` runs in the bare install.
"""

from __future__ import annotations

import ast
import importlib.util
from collections.abc import Collection, Mapping
from dataclasses import dataclass, field
from difflib import get_close_matches
from pathlib import Path
from typing import Any, Final

from stowplan_agent.inventory.errors import InventoryError
from stowplan_agent.inventory.headers import Header
from stowplan_agent.inventory.quantisation import check_configs, check_index, check_weights
from stowplan_agent.inventory.tensors import TensorInfo
from stowplan_agent.inventory.weight_files import find_weights, merge_tensors, read_json_object

INDEX: Final = "model_index.json"
WEIGHTLESS: Final = ("scheduler_config.json", "tokenizer_config.json", "preprocessor_config.json")
"""Configs of parts that compute nothing; a folder with one of these need not hold weights."""

VOCABULARIES: Final = ("tokenizer.json", "*.model", "vocab.json", "vocab.txt")
"""Files one of which a tokenizer needs. transformers makes one without any of them, to which all prompts are alike."""


@dataclass(frozen=True)
class CheckpointComponent:
    """One part of the pipeline as the files describe it. ``configs`` is by file name; ``headers`` one a weight file."""

    name: str
    library: str
    class_name: str
    configs: Mapping[str, Mapping[str, Any]] = field(default_factory=dict)
    headers: tuple[Header, ...] = ()
    tensors: Mapping[str, TensorInfo] = field(default_factory=dict)

    @property
    def config(self) -> Mapping[str, Any]:
        """The component's own config: ``config.json``, or the first of `WEIGHTLESS` that it has, or nothing."""
        return next((self.configs[name] for name in ("config.json", *WEIGHTLESS) if name in self.configs), {})


@dataclass(frozen=True)
class Checkpoint:
    """A diffusers pipeline on disk. ``settings`` are the values of its index that are no components."""

    path: Path
    pipeline: str
    settings: Mapping[str, Any]
    components: tuple[CheckpointComponent, ...]

    @property
    def name(self) -> str:
        """The name of the checkpoint's folder."""
        return self.path.name

    @property
    def weighted(self) -> tuple[CheckpointComponent, ...]:
        """The components that have weights, in the order of the index."""
        return tuple(component for component in self.components if component.headers)


def read_checkpoint(path: Path, *, variant: str | None = None) -> Checkpoint:
    """Read the folder ``path``, with the weights of ``variant`` (``fp16``, say) where a component has them.

    Raises `InventoryError`, one sentence, for anything missing, malformed, truncated, quantised or not to be read.
    """
    try:
        return _read_checkpoint(path.absolute(), variant)
    except OSError as error:  # a folder that may not be looked into, a name that is too long
        where = error.filename or path
        raise InventoryError(f"{where} cannot be read ({error.strerror}); give a folder that can be") from None


def _read_checkpoint(path: Path, variant: str | None) -> Checkpoint:
    if not path.exists():
        raise InventoryError(f"{path} does not exist; give the folder of a checkpoint")
    if not path.is_dir() or not (path / INDEX).is_file():
        raise InventoryError(f"{path} is no diffusers checkpoint: it has no {INDEX}; give the folder that holds it")
    index = read_json_object(path / INDEX)
    pipeline = index.get("_class_name")
    if isinstance(pipeline, list):
        raise InventoryError(
            f"{path / INDEX} asks for the pipeline {pipeline!r} from code of its own, and only classes of diffusers "
            "are loaded; give a checkpoint of one of those"
        )
    if not isinstance(pipeline, str) or not pipeline:
        raise InventoryError(f"{path / INDEX} names no pipeline class in _class_name; download it again")
    check_index(path / INDEX, index)
    entries = {name: value for name, value in index.items() if _is_component(value)}
    components = tuple(
        _read_component(path, name, value, variant) for name, value in entries.items() if None not in value
    )
    if not any(component.headers for component in components):
        raise InventoryError(f"{path / INDEX} names no component with weights; download the checkpoint again")
    settings = {name: value for name, value in index.items() if name not in entries and not name.startswith("_")}
    return Checkpoint(path, pipeline, settings, components)


def check_classes(checkpoint: Checkpoint, known: Collection[str]) -> None:
    """Check the pipeline and its diffusers components against the ``known`` class names. Raises `InventoryError`."""
    asked = [("pipeline", checkpoint.pipeline)]
    asked += [
        (f"component {part.name}", part.class_name) for part in checkpoint.components if part.library == "diffusers"
    ]
    for thing, class_name in asked:
        if class_name not in known:
            close = get_close_matches(class_name, known, n=1)
            hint = f"did it mean {close[0]}?" if close else "install a diffusers that has it"
            raise InventoryError(
                f"{checkpoint.path / INDEX}: the installed diffusers has no class {class_name} for the {thing}; {hint}"
            )


def diffusers_classes() -> frozenset[str] | None:
    """The class names that the installed diffusers exports, or None without diffusers.

    Its table of lazy imports is plain strings in its ``__init__.py``. Reading them takes milliseconds; importing the
    package would import torch.
    """
    spec = importlib.util.find_spec("diffusers")
    if spec is None or spec.origin is None:
        return None
    nodes = ast.walk(ast.parse(Path(spec.origin).read_text(encoding="utf-8")))
    strings = (node.value for node in nodes if isinstance(node, ast.Constant) and isinstance(node.value, str))
    return frozenset(text for text in strings if text.isidentifier() and text[0].isupper())


def _is_component(value: Any) -> bool:
    """Whether a value of the index is ``[library, class]``, or ``[null, null]`` for an optional part left out."""
    return isinstance(value, list) and len(value) == 2 and all(part is None or isinstance(part, str) for part in value)


def _read_component(root: Path, name: str, value: list[str], variant: str | None) -> CheckpointComponent:
    library, class_name = value
    folder = root / name
    if Path(name).name != name or not folder.is_dir():
        raise InventoryError(f"{root / INDEX} names the component {name!r}, and there is no such folder in {root}")
    configs = {file.name: read_json_object(file) for file in sorted(folder.glob("*config.json"))}
    check_configs(folder, configs)
    headers = find_weights(folder, library, variant)
    check_weights(folder, headers)
    if headers and "config.json" not in configs:
        raise InventoryError(f"{folder} has weights but no config.json; download the checkpoint again")
    if not headers and "config.json" in configs and not any(file in configs for file in WEIGHTLESS):
        raise InventoryError(f"{folder} ({class_name}) has a config.json but no weights; download the checkpoint again")
    # Tokenizers of bytes (ByT5) have no vocabulary.
    wanting = "Tokenizer" in class_name and not class_name.startswith("ByT5")
    if wanting and not any(file.is_file() for pattern in VOCABULARIES for file in folder.glob(pattern)):
        raise InventoryError(
            f"{folder} ({class_name}) has no vocabulary ({', '.join(VOCABULARIES)}); download the checkpoint again"
        )
    return CheckpointComponent(name, library, class_name, configs, headers, merge_tensors(headers))
