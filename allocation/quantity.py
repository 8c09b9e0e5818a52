"""Kubernetes quantities, parsed exactly.

Source: the grammar in k8s.io/apimachinery/pkg/api/resource/quantity.go. No floats are used: `0.1` is one tenth.
"""

import re
from contextlib import suppress
from fractions import Fraction
from functools import lru_cache
from typing import Final

from allocation.errors import AllocationError, InvalidFieldError

INT32_MAX: Final = 2**31 - 1

_GRAMMAR: Final = re.compile(
    r"(?P<number>[+-]?(?:[0-9]+\.?[0-9]*|\.[0-9]+))(?:(?P<exponent>[eE][+-]?[0-9]{1,3})|(?P<suffix>[numkMGTPE]|[KMGTPE]i)?)"
)
_DECIMAL: Final = {"n": -9, "u": -6, "m": -3, "": 0, "k": 3, "M": 6, "G": 9, "T": 12, "P": 15, "E": 18}
_BINARY: Final = {"Ki": 10, "Mi": 20, "Gi": 30, "Ti": 40, "Pi": 50, "Ei": 60}
_MIB: Final = 2**20
_COUNTS_MIB: Final = re.compile(r"[+-]?[0-9.]+k?")
_MAX_LENGTH: Final = 128
"""Characters of a quantity. The API server's canonical form of a 63-bit number has at most 30."""

Quantity = str | int | float
"""As decoded from JSON: the API server always sends a string, a manifest may contain a number."""


# The pods of a cluster request the same few amounts again and again, and an exact number costs microseconds.
_cached: Final = lru_cache(maxsize=4096)


def parse(text: Quantity) -> Fraction:
    """Return the exact value of a quantity.

    Raises:
        AllocationError: `text` is not a quantity.
    """
    written = str(text)
    match = _GRAMMAR.fullmatch(written) if len(written) <= _MAX_LENGTH else None
    if match is None:
        raise AllocationError(f"{written[:_MAX_LENGTH]!r} is not a Kubernetes quantity")
    number, suffix = _number(match["number"]), match["suffix"] or ""
    if suffix in _BINARY:
        return Fraction(number * (1 << _BINARY[suffix]))
    power = int(match["exponent"][1:]) if match["exponent"] else _DECIMAL[suffix]
    return Fraction(number * 10**power) if power >= 0 else Fraction(number, 10**-power)


def _number(written: str) -> int | Fraction:
    # Almost all are whole, and arithmetic with fractions is slow.
    return int(written) if written.isdecimal() else Fraction(written)


def whole(text: Quantity, *, field: str, unit: str, minimum: int = 0, maximum: int = INT32_MAX) -> int:
    """Return a quantity that counts `unit`s: a whole number from `minimum` to `maximum`.

    The API server canonicalises quantities, so that a user's `3000` arrives as `3k`: decimal suffixes are multipliers.
    A binary suffix means bytes instead of `unit`s and is an error that suggests the number that was likely meant.

    Raises:
        InvalidFieldError: the quantity is not such a number; the error names `field`, its value and the remedy.
    """
    number = _integer(str(text))
    if number is not None and minimum <= number <= maximum:
        return number
    expected = f"it must be a whole number of {unit} from {minimum} to {maximum}"
    remedy = f"write a plain integer number of {unit}"
    if str(text).endswith("i"):
        expected += ", without a binary suffix"
        with suppress(AllocationError):
            remedy = f'write "{-(-parse(text) // _MIB)}" for {text}' if unit == "MiB" else remedy
    raise InvalidFieldError(field=field, value=text, expected=expected, remedy=remedy)


@_cached
def _integer(written: str) -> int | None:
    """Return the value of a whole number without a binary suffix; None for anything else."""
    try:
        value = parse(written)
    except AllocationError:
        return None
    return value.numerator if value.denominator == 1 and not written.endswith("i") else None


@_cached
def is_zero(written: str) -> bool:
    """Whether an amount is a quantity, and 0."""
    try:
        return parse(written) == 0
    except AllocationError:
        return False


@_cached
def milli(text: Quantity) -> int:
    """Return a requested amount in thousandths, rounded up: `100m` CPU is 100."""
    return -int(-parse(text) * 1000 // 1)


@_cached
def units(text: Quantity) -> int:
    """Return a requested amount in whole units (bytes, pods), rounded up."""
    return -int(-parse(text) // 1)


@_cached
def binding_mib(text: Quantity) -> int:
    """Return the MiB of a GPUBinding's memory: a plain number, or one with `k`, counts MiB, any other suffix bytes.

    Application services write MiB as a decimal quantity, and Go prints 24000 as `24k`. Fractions are rounded up.

    Raises:
        AllocationError: the quantity cannot be read, or is not an amount of memory.
    """
    written = str(text)
    value = parse(written)
    if not _COUNTS_MIB.fullmatch(written):
        value /= _MIB
    mib = -int(-value // 1)
    if not 0 < mib <= INT32_MAX:
        raise AllocationError(f"{written[:_MAX_LENGTH]!r} is not an amount of memory from 1 to {INT32_MAX} MiB")
    return mib


def milli_capacity(text: Quantity) -> int:
    """Return a capacity in thousandths, rounded down."""
    return int(parse(text) * 1000 // 1)


def unit_capacity(text: Quantity) -> int:
    """Return a capacity in whole units, rounded down."""
    return int(parse(text) // 1)
