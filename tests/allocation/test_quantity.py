"""Quantities are read exactly, and ambiguous ones are errors that name the remedy."""

from fractions import Fraction

import pytest
from hypothesis import given
from hypothesis import strategies as st

from allocation import quantity
from allocation.errors import AllocationError, InvalidFieldError


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("3000", 3000),
        ("3k", 3000),
        (3000, 3000),
        ("1e3", 1000),
        ("0.1", Fraction(1, 10)),
        ("100m", Fraction(1, 10)),
        ("10Gi", 10 * 2**30),
        (".5", Fraction(1, 2)),
        ("12E", 12 * 10**18),
        ("12e6", 12_000_000),
        ("-1", -1),
    ],
)
def test_a_quantity_has_its_exact_value(text: quantity.Quantity, value: Fraction) -> None:
    """Every form that Kubernetes writes is read without rounding."""
    assert quantity.parse(text) == value


@pytest.mark.parametrize("text", ["", "x", "1 k", "1KiB", "Ki", "--1", "NaN", "1e", "\u0661"])
def test_other_text_is_an_error(text: str) -> None:
    """Text that Kubernetes does not accept as a quantity is not read as one."""
    with pytest.raises(AllocationError):
        quantity.parse(text)


@given(st.integers(min_value=0, max_value=quantity.INT32_MAX))
def test_whole_numbers_are_read_in_canonical_form(value: int) -> None:
    """A plain integer keeps its value, however the API server writes it."""
    assert quantity.whole(str(value), field="f", unit="MiB") == value
    if value % 1000 == 0:
        assert quantity.whole(f"{value // 1000}k", field="f", unit="MiB") == value


@pytest.mark.parametrize("text", ["10Gi", "1.5", "500m", "-1", str(2**31), str(2**32), str(2**63), "1E", "abc"])
def test_an_invalid_count_is_an_error_with_field_and_remedy(text: str) -> None:
    """The message names the field, its value and what to write instead."""
    with pytest.raises(InvalidFieldError) as refused:
        quantity.whole(text, field='spec.containers[0].resources.limits["nvidia.com/gpumem"]', unit="MiB")
    assert "nvidia.com/gpumem" in str(refused.value)
    assert repr(text) in str(refused.value)
    assert "write" in str(refused.value)


def test_a_binary_suffix_is_an_error_with_the_likely_number() -> None:
    """`10Gi` of memory in MiB is most likely 10240."""
    with pytest.raises(InvalidFieldError, match='write "10240" for 10Gi'):
        quantity.whole("10Gi", field="f", unit="MiB")


def test_requests_round_up_and_capacities_down() -> None:
    """Rounding never allocates more than there is."""
    assert quantity.milli("0.0001") == 1
    assert quantity.milli_capacity("0.0019") == 1
    assert quantity.units("1500m") == 2
    assert quantity.unit_capacity("1500m") == 1
