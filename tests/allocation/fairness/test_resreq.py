"""Requirements in one line: what is read, and what is refused."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from allocation.errors import AllocationError
from allocation.fairness.resreq import Requirement

GIB = 1024**3
amounts = st.integers(0, 10**9 - 1)
requirements = st.builds(Requirement, cpu=amounts, memory_bytes=st.integers(0, 10**18 - 1), gpu=amounts)


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("cpu=4,mem=16g,gpu=2", Requirement(4, 16 * GIB, 2)),
        ("cpu=4", Requirement(4)),
        ("gpu=1", Requirement(gpu=1)),
        (" cpu = 4 , mem = 16g ", Requirement(4, 16 * GIB)),
        ("CPU=1,Memory=2G,GPU=3", Requirement(1, 2 * GIB, 3)),
        ("mem=1024", Requirement(memory_bytes=1024)),
        *((f"mem=1{unit}", Requirement(memory_bytes=1024)) for unit in ("k", "K", "kb", "KB", "ki", "Ki", "KiB")),
        *((f"mem=1{unit}", Requirement(memory_bytes=1024**power)) for power, unit in enumerate("kmgtp", 1)),
        ("mem=1.5g", Requirement(memory_bytes=3 * GIB // 2)),
        ("mem=0.3", Requirement()),
        ("mem=1.9k", Requirement(memory_bytes=1945)),
    ],
)
def test_what_is_read(text: str, expected: Requirement) -> None:
    """Fields in any order and case, units of 1024, fractions of a byte dropped."""
    assert Requirement.parse(text) == expected


@pytest.mark.parametrize(
    ("text", "entry"),
    [
        ("", "''"),
        ("cpu=1,", "''"),
        ("mem=1g,cpu", "'cpu'"),
        ("cpu=1=2", "'cpu=1=2'"),
        ("cpu=", "'cpu='"),
        ("gpu=1,foo=1", "'foo=1'"),
        ("cpu=x", "'cpu=x'"),
        ("cpu=1,mem=1z", "'mem=1z'"),
        ("gpu=-1", "'gpu=-1'"),
        ("cpu=1.5", "'cpu=1.5'"),
        ("mem=-1g", "'mem=-1g'"),
        ("cpu=٣", "'cpu=٣'"),
        ("cpu=1,cpu=2", "'cpu=2'"),
        ("mem=1g,memory=1g", "'memory=1g'"),
    ],
)
def test_what_is_refused(text: str, entry: str) -> None:
    """The message names the entry; nothing is read as zero in silence."""
    with pytest.raises(AllocationError, match=entry):
        Requirement.parse(text)


@given(requirements)
def test_what_is_written_is_read_as_the_same(requirement: Requirement) -> None:
    """`str` and `parse` are inverse."""
    assert Requirement.parse(str(requirement)) == requirement
