from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import pytest


def test_tests_of_one_lab_run_in_one_process(request: pytest.FixtureRequest) -> None:
    """In the processes of `make test`, every test has a group, by which pytest-xdist assigns it to a process."""
    is_shared = request.config.getoption("loadgroup", default=False)
    assert request.node.nodeid.partition("@")[2] == ("test_groups.py" if is_shared else "")
