"""Quantities as users write them: each is read exactly, or rejected with an error that names the field."""

from allocation import quantity
from allocation.errors import AllocationError, InvalidFieldError
from allocation.quota import limits
from allocation.settings import AllocationSettings

_FIELD = 'spec.containers[0].resources.limits["nvidia.com/gpumem"]'


def try_bytes(data: bytes) -> None:
    """Read `data` by every function that parses a quantity."""
    text = data.decode(errors="replace")
    limits({"q": {"limits.nvidia.com/gpu": text, "limits.nvidia.com/gpumem": text}}, AllocationSettings())
    try:
        number = quantity.whole(text, field=_FIELD, unit="MiB")
    except InvalidFieldError as error:
        assert str(error).startswith(_FIELD)
    else:
        assert 0 <= number <= quantity.INT32_MAX
        assert quantity.parse(text) == number
    try:
        exact = quantity.parse(text)
    except AllocationError:
        return
    assert quantity.unit_capacity(text) <= exact <= quantity.units(text)
    assert quantity.milli_capacity(text) <= exact * 1000 <= quantity.milli(text)
    assert quantity.units(text) - quantity.unit_capacity(text) <= 1
