from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from tests.conftest import SYSTEM

if TYPE_CHECKING:
    from collections.abc import Callable


@pytest.fixture
def group(request: pytest.FixtureRequest) -> Callable[[str], str]:
    """A function that returns the group by which pytest-xdist assigns a test to a process."""
    hook = request.config.pluginmanager.hook
    config = pytest.Config.fromdictargs({"numprocesses": 2, "tx": ["2*popen"]}, ["--numprocesses=2"])
    scheduling = hook.pytest_xdist_make_scheduler(config=config, log=None)
    return lambda test: scheduling._split_scope(f"tests/{test}")


@pytest.mark.parametrize(
    ("test", "expected"),
    [
        ("system/test_recovery.py::test_kill[1]", "system"),
        ("system/test_extender.py::test_outage", "extender"),
        ("lab/test_real_node.py::test_ready", "lab"),
        ("install/test_whole_life.py::test_helm", "lab"),
        ("cluster/test_proxy.py::test_none", "test_proxy.py"),
    ],
)
def test_tests_of_one_lab_run_in_one_process(group: Callable[[str], str], test: str, expected: str) -> None:
    """Two processes would each start that lab, and the tests of one machine's node would disturb each other."""
    assert SYSTEM.is_dir()
    assert group(test) == expected
