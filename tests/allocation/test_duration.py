"""Durations: what is read and what is refused."""

import pytest

from allocation import duration
from allocation.errors import AllocationError


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("90s", 90),
        ("30m", 1800),
        ("2h", 7200),
        ("1h30m", 5400),
        ("1h0m30s", 3630),
        ("1.5h", 5400),
        ("0s", 0),
        ("9" * 63 + "h", float("9" * 63) * 3600),
    ],
)
def test_what_is_read(text: str, expected: float) -> None:
    """Hours, minutes and seconds, together or alone, also in decimals."""
    assert duration.seconds(text) == expected


@pytest.mark.parametrize(
    "text",
    ["", "90", "0", "-1h", "1d", "1h 30m", " 1h", "h", "1H", ".5h", "1,5h", "٣h", "1h\n", "1e3s", "9" * 64 + "h"],
)
def test_what_is_refused(text: str) -> None:
    """The message shows the valid form; a number without a unit is not a duration."""
    with pytest.raises(AllocationError, match="such as 2h, 30m or 1h30m"):
        duration.seconds(text)
