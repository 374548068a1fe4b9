"""Quantities: the numbers that the API server reads are the numbers that we read."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic import TypeAdapter, ValidationError

from stowplan_api.quantity import LARGEST, MOST, PositiveQuantity, Quantity, for_people, format_quantity, parse_quantity

GIB = 1 << 30

# What resource.Quantity of apimachinery answers to Value(): fractions of a unit are rounded up.
ACCEPTED = [
    ("0", 0),
    ("1", 1),
    ("007", 7),
    ("+5", 5),
    ("-0", 0),
    ("1.", 1),
    (".5", 1),
    ("1n", 1),
    ("1000000001n", 2),
    ("100u", 1),
    ("100m", 1),
    ("1500m", 2),
    ("2000m", 2),
    ("1k", 1000),
    ("1M", 10**6),
    ("1G", 10**9),
    ("1T", 10**12),
    ("1P", 10**15),
    ("1E", 10**18),
    ("1Ki", 1 << 10),
    ("1Mi", 1 << 20),
    ("24Gi", 24 * GIB),
    ("1Ti", 1 << 40),
    ("1Pi", 1 << 50),
    ("7Ei", 7 << 60),
    ("0.5Gi", GIB // 2),
    ("0.1Gi", 107374183),
    ("1.5G", 1_500_000_000),
    ("1e3", 1000),
    ("1E3", 1000),
    ("1e-3", 1),
    ("12e+2", 1200),
    ("1.0000000000000000000000000000000000001", 2),
    ("9223372036854775807", LARGEST),
    (96, 96),
]

REFUSED = [
    ("", "is not a quantity"),
    ("Gi", "is not a quantity"),
    (".", "is not a quantity"),
    ("1 Gi", "is not a quantity"),
    (" 1Gi", "is not a quantity"),
    ("1Gi\n", "is not a quantity"),
    ("1GB", "is not a quantity"),
    ("1gi", "is not a quantity"),
    ("24GB", r"write 24Gi for 24 GiB \(powers of 1024\), or 24G for 24 GB \(powers of 1000\)$"),
    ("24 gib", "write 24Gi for 24 GiB"),
    ("1.5t", "write 1.5Ti for 1.5 TiB"),
    ("8K", "write 8Ki for 8 KiB .* or 8k for 8 kB"),
    ("24G B", "write bytes as 24Gi"),
    ("1K", "is not a quantity"),
    ("1e3Ki", "is not a quantity"),
    ("--1", "is not a quantity"),
    ("0x10", "is not a quantity"),
    ("\u0661Gi", "is not a quantity"),
    ("nan", "is not a quantity"),
    (True, "is not a quantity"),
    (1.5, "is not a quantity"),
    (None, "is not a quantity"),
    ("-1", "is negative"),
    ("-1n", "is negative"),
    ("-2Gi", "is negative"),
    (-1, "is negative"),
    ("8Ei", "out of range"),
    ("9223372036854775808", "out of range"),
    ("1e19", "out of range"),
    ("1e999999999999", "out of range"),
    ("9" * 400, "out of range"),
]


@pytest.mark.parametrize(("text", "units"), ACCEPTED)
def test_a_quantity_is_what_the_api_server_reads(text: object, units: int) -> None:
    assert parse_quantity(text) == units


@pytest.mark.parametrize(("text", "why"), REFUSED)
def test_anything_else_is_refused_in_one_sentence(text: object, why: str) -> None:
    with pytest.raises(ValueError, match=why) as refusal:
        parse_quantity(text)
    assert "\n" not in str(refusal.value)


@given(st.integers(min_value=0, max_value=LARGEST))
def test_formatting_loses_nothing(units: int) -> None:
    assert parse_quantity(format_quantity(units)) == units


@given(st.integers(min_value=1, max_value=7), st.sampled_from(["Ki", "Mi", "Gi", "Ti", "Pi", "Ei"]))
def test_whole_units_keep_their_suffix(number: int, suffix: str) -> None:
    assert format_quantity(parse_quantity(f"{number}{suffix}")) == f"{number}{suffix}"


SCALES = {"Ki": 1 << 10, "Mi": 1 << 20, "Gi": GIB, "G": 10**9, "": 1}


@given(st.integers(0, 10**6), st.integers(0, 10**9 - 1), st.sampled_from(sorted(SCALES)))
def test_a_fraction_of_a_byte_is_rounded_up(whole: int, billionths: int, suffix: str) -> None:
    exact = (whole * 10**9 + billionths) * SCALES[suffix]
    assert parse_quantity(f"{whole}.{billionths:09d}{suffix}") == -(-exact // 10**9)


@pytest.mark.parametrize(
    ("units", "text"),
    [(0, "0 bytes"), (1023, "1023 bytes"), (1024, "1 KiB"), (25232932864, "23.5 GiB"), (-3 * GIB, "-3 GiB")],
)
def test_people_read_binary_units(units: int, text: str) -> None:
    assert for_people(units) == text


@pytest.mark.parametrize(("type_", "value"), [(Quantity, "65Ti"), (PositiveQuantity, "0"), (PositiveQuantity, "65Ti")])
def test_a_field_has_bounds(type_: object, value: str) -> None:
    with pytest.raises(ValidationError):
        TypeAdapter(type_).validate_python(value)


def test_a_field_is_an_int_in_python_and_a_quantity_in_json() -> None:
    adapter = TypeAdapter(Quantity)
    assert adapter.validate_python("64Ti") == MOST
    assert adapter.dump_python(24 * GIB) == 24 * GIB
    assert adapter.dump_python(24 * GIB, mode="json") == "24Gi"
