from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from lab.errors import LabError
from lab.lock import exclusive

if TYPE_CHECKING:
    from pathlib import Path


def test_second_command_is_told_who_is_at_work(tmp_path: Path) -> None:
    """Two lab commands at once are refused with the name and the pid of the first."""
    with (
        exclusive(tmp_path / "lock", holder="`lab up`"),
        pytest.raises(LabError, match=r"is in use: `lab up` \(pid \d+\) is at work on it; wait"),
        exclusive(tmp_path / "lock", holder="`lab down`"),
    ):
        pytest.fail("both hold the lock")


def test_lock_is_free_after_its_holder(tmp_path: Path) -> None:
    """The lock file stays, the lock does not."""
    for holder in ("first", "second"):
        with exclusive(tmp_path / "lock", holder=holder):
            assert (tmp_path / "lock").read_text().startswith(holder)
