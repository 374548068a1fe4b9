"""Kubernetes quantities as exact integers.

The API server normalises what users write (``1024Mi`` stays, ``0.5Gi`` becomes ``512Mi``), so both directions follow
apimachinery's resource.Quantity: decimal suffixes n u m k M G T P E, binary Ki Mi Gi Ti Pi Ei, and decimal exponents.
No float is involved: 0.1Gi is 107374182.4 bytes and is rounded up to 107374183, as the API server does.
"""

from __future__ import annotations

import math
import re
from fractions import Fraction
from typing import Annotated, Final

from pydantic import BeforeValidator, Field, PlainSerializer, WithJsonSchema
from pydantic.types import JsonValue

from stowplan_api.markers import rules

_SYNTAX: Final = re.compile(r"([+-]?(?:[0-9]+\.?[0-9]*|\.[0-9]+))(Ki|Mi|Gi|Ti|Pi|Ei|[numkMGTPE]|[eE][+-]?[0-9]+)?")
_LOOSELY: Final = re.compile(r"\s*([0-9]{1,9}(?:\.[0-9]{1,9})?)\s*([KMGTP])(?:i?B?|bytes)\s*", re.ASCII | re.I)
_BINARY: Final = {"Ki": 1 << 10, "Mi": 1 << 20, "Gi": 1 << 30, "Ti": 1 << 40, "Pi": 1 << 50, "Ei": 1 << 60}
_DECIMAL: Final = {"n": -9, "u": -6, "m": -3, "": 0, "k": 3, "M": 6, "G": 9, "T": 12, "P": 15, "E": 18}
LARGEST: Final = (1 << 63) - 1
LONGEST: Final = 64
"""Characters of a quantity, and size of its exponent: a bound on the work that one text can ask for."""
MOST: Final = 64 << 40
"""Bytes that a field of the contract may ask for: 64Ti, far above any machine, far below an overflow of sums."""


def parse_quantity(value: object) -> int:
    """Whole units (bytes) of a quantity such as ``24Gi``, ``1.5G`` or ``1e9``; fractions are rounded up.

    Raises ValueError, in one sentence, for anything else, for negative values, and above 2^63 - 1 (to which the API
    server would lower it in silence).
    """
    if isinstance(value, bool) or not isinstance(value, (int, str)):
        raise ValueError(f"{value!r} is not a quantity; write bytes as 24Gi, 512Mi or 1000000000")
    match = _SYNTAX.fullmatch(str(value))
    if match is None:
        raise ValueError(f"{value!r} is not a quantity; write {_meant(str(value))}")
    if len(match[0]) > LONGEST:
        raise ValueError(f"a quantity of {len(match[0])} characters is out of range; the largest is 8Ei - 1")
    whole, _, fraction = match[1].partition(".")
    number, suffix = Fraction(int(whole + fraction), 10 ** len(fraction)), match[2] or ""
    if suffix in _BINARY:
        exact = number * _BINARY[suffix]
    else:
        exponent = _DECIMAL[suffix] if suffix in _DECIMAL else int(suffix[1:])
        if abs(exponent) > LONGEST:
            raise ValueError(f"{value!r} is out of range; the largest quantity is 8Ei - 1")
        exact = number * Fraction(10) ** exponent
    if exact < 0:
        raise ValueError(f"{value!r} is negative; a quantity of bytes is 0 or more")
    if exact > LARGEST:
        raise ValueError(f"{value!r} is out of range; the largest quantity is 8Ei - 1")
    return math.ceil(exact)


def _meant(text: str) -> str:
    """How to write what is no quantity: as people write sizes elsewhere, 24GB and 24 gib are two sizes, not one."""
    match = _LOOSELY.fullmatch(text)
    if match is None:
        return "bytes as 24Gi, 512Mi or 1000000000"
    number, letter = match[1], match[2].upper()
    decimal = "k" if letter == "K" else letter
    binary = f"{number}{letter}i for {number} {letter}iB"
    return f"{binary} (powers of 1024), or {number}{decimal} for {number} {decimal}B (powers of 1000)"


def format_quantity(units: int) -> str:
    """The shortest exact Kubernetes text of whole units: the largest binary suffix that divides them."""
    for suffix, factor in reversed(_BINARY.items()):
        if units and units % factor == 0:
            return f"{units // factor}{suffix}"
    return str(units)


def for_people(units: int) -> str:
    """Bytes for a person to read: three digits and a binary unit, such as ``23.5 GiB``. Not for machines."""
    for suffix, factor in reversed(_BINARY.items()):
        if abs(units) >= factor:
            return f"{units / factor:.2f}".rstrip("0").rstrip(".") + f" {suffix}B"
    return f"{units} bytes"


def _schema(least: int) -> WithJsonSchema:
    """The API server's side of a quantity from ``least`` (0 or 1) bytes to `MOST`.

    CEL knows an int-or-string as a value of either type, so the rule asks which one it is before it compares. There is
    no pattern beside it: the message of a failed pattern is a regular expression, which helps nobody.
    """
    above = "self >= 0" if least == 0 else "self > 0"
    quantity_above = f"quantity(self).compareTo(quantity('0')) {'>=' if least == 0 else '>'} 0"
    most = format_quantity(MOST)
    rule = (
        f"type(self) == int ? {above} && self <= {MOST} : "
        f"isQuantity(self) && {quantity_above} && quantity(self).compareTo(quantity('{most}')) <= 0"
    )
    lower = "not be negative" if least == 0 else "be more than 0"
    message = f"must {lower} and at most {most}; write bytes as 24Gi or 512Mi"
    types: list[JsonValue] = [{"type": "integer"}, {"type": "string"}]
    return WithJsonSchema({"x-kubernetes-int-or-string": True, "anyOf": types, **rules((rule, message))})


_SERIALIZER: Final = PlainSerializer(format_quantity, return_type=str, when_used="json")

Quantity = Annotated[int, Field(le=MOST), BeforeValidator(parse_quantity), _SERIALIZER, _schema(least=0)]
"""A number of bytes from 0 to `MOST`: an int in Python, Kubernetes syntax in JSON."""
PositiveQuantity = Annotated[int, Field(ge=1, le=MOST), BeforeValidator(parse_quantity), _SERIALIZER, _schema(least=1)]
"""A `Quantity` that is not 0."""
