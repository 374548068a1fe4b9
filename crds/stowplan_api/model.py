"""The base of every value in the contract.

One configuration for all of them: field names are snake_case in Python and camelCase in JSON, unknown fields are
refused (a typing error must not be ignored in silence), and values are frozen, so that a record or a placement can be
shared between threads and used as a key.
"""

from __future__ import annotations

import json
import re
from collections.abc import Sequence
from pathlib import Path
from typing import Any, ClassVar, Final, Self

from pydantic import BaseModel, ConfigDict, ValidationError
from pydantic.alias_generators import to_camel

GROUP = "stowplan.dev"
VERSION = "v1alpha1"
API_VERSION = f"{GROUP}/{VERSION}"

_PLAIN: Final = re.compile(r"[A-Za-z_][A-Za-z0-9_-]*")


class ContractError(ValueError):
    """A document that is not what it says it is. The message is one sentence that a user can act on."""


class FieldError(ValueError):
    """Raised by a validator of a whole value for one field inside it, which ``path`` leads to, by its JSON names."""

    def __init__(self, path: Sequence[str | int], message: str) -> None:
        super().__init__(message)
        self.path = tuple(path)


class Model(BaseModel):
    """A frozen value with camelCase JSON names and no unknown fields."""

    model_config: ClassVar[ConfigDict] = ConfigDict(
        alias_generator=to_camel,
        populate_by_name=True,
        extra="forbid",
        frozen=True,
        allow_inf_nan=False,
        use_attribute_docstrings=True,
    )

    def to_json(self, *, exclude_none: bool = False) -> dict[str, Any]:
        """The value as plain JSON types, with camelCase names."""
        return self.model_dump(mode="json", by_alias=True, exclude_none=exclude_none)

    def canonical(self) -> str:
        """The canonical JSON text (keys sorted, no spaces, nothing absent): PLANNING.md's last tie-break."""
        return json.dumps(self.to_json(exclude_none=True), sort_keys=True, separators=(",", ":"))


class Document(Model):
    """A value that travels as a file: it carries ``apiVersion`` and ``kind``."""

    @classmethod
    def from_json(cls, data: object, *, source: str = "document") -> Self:
        """Check plain JSON data. Raises `ContractError` naming ``source``, the field and what is wrong with it."""
        kind = data.get("kind") if isinstance(data, dict) else None
        if isinstance(kind, str) and kind != cls.__name__:  # that it lacks every field, too, would explain nothing
            raise ContractError(
                _printable(f"{source}: {cls.__name__} field kind: this is a {_short(kind)}; give a {cls.__name__}")
            )
        try:
            return cls.model_validate(data)
        except ValidationError as error:
            raise ContractError(first_problem(error, source, cls.__name__)) from None

    @classmethod
    def read(cls, path: Path) -> Self:
        """Read a JSON file. Raises `ContractError` for a missing, malformed or invalid one."""
        try:
            data = parse_json(path.read_text(encoding="utf-8"))
        except OSError as error:
            raise ContractError(
                f"{path}: cannot be read ({error.strerror}); give the path of a {cls.__name__}"
            ) from None
        except (ValueError, RecursionError) as error:
            raise ContractError(f"{path}: is not JSON ({error}); give the path of a {cls.__name__}") from None
        return cls.from_json(data, source=str(path))


def parse_json(text: str) -> Any:
    """Plain JSON data. Raises ValueError, also where an object has a name twice: which one counts is not guessed.

    Nor may a text have half of a character (``\\ud800``): JSON can write it, and nothing can print it.
    """
    data = json.loads(text, object_pairs_hook=_each_once)
    if "\\ud" in text or "\\uD" in text:
        try:
            json.dumps(data, ensure_ascii=False).encode()
        except UnicodeEncodeError as error:
            raise ValueError(f"a text has half of a character, {error.object[error.start]!a}") from None
    return data


def _each_once(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    found = dict(pairs)
    if len(found) < len(pairs):
        names = [name for name, _ in pairs]
        twice = next(name for name in names if names.count(name) > 1)
        raise ValueError(f"an object has the name {json.dumps(twice)} twice")
    return found


def first_problem(error: ValidationError, source: str, kind: str) -> str:
    """One sentence about the first problem of a pydantic error, and how many more there are.

    It has the path to the field, what was expected, and what is there.
    """
    problems = error.errors(include_url=False)
    first = problems[0]
    raised = first.get("ctx", {}).get("error")
    where = path_text((*first["loc"], *(raised.path if isinstance(raised, FieldError) else ()))) or kind
    message = first["msg"].removeprefix("Value error, ")
    value = "" if first["type"] in ("missing", "value_error") else f" (it is {_short(first['input'])})"
    more = f"; {len(problems) - 1} more like this" if len(problems) > 1 else ""
    return _printable(f"{source}: {kind} field {where}: {message}{value}{more}")


def path_text(path: Sequence[str | int]) -> str:
    """A path as it is written in code: ``intervals[3].runs[0].layerSeconds.blocks``."""
    text = ""
    for part in path:
        if isinstance(part, int):
            text += f"[{part}]"
        elif _PLAIN.fullmatch(part):
            text += f".{part}"
        else:
            text += f"[{json.dumps(part)}]"
    return text.removeprefix(".")


def _short(value: object) -> str:
    text = repr(value)
    return text if len(text) <= 60 else text[:57] + "..."


def _printable(text: str) -> str:
    """What a document says of itself may hold line breaks, or halves of a character that no terminal can encode."""
    return "".join(one if one.isprintable() else one.encode("unicode_escape").decode() for one in text)
