from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from lab.errors import LabError
from lab.lock import exclusive

if TYPE_CHECKING:
    from pathlib import Path


def test_a_second_command_fails_with_the_name_of_the_first(tmp_path: Path) -> None:
    """The error of the second command has the name and the process ID of the first."""
    with (
        exclusive(tmp_path / "lock", holder="`lab up`"),
        pytest.raises(LabError, match=r"is in use: `lab up` \(pid \d+\) is running; wait"),
        exclusive(tmp_path / "lock", holder="`lab down`"),
    ):
        pytest.fail("both hold the lock")


def test_the_lock_is_released_after_the_block(tmp_path: Path) -> None:
    """The lock file remains, but the lock is released."""
    for holder in ("first", "second"):
        with exclusive(tmp_path / "lock", holder=holder):
            assert (tmp_path / "lock").read_text().startswith(holder)
