"""The lab of a machine whose processes were all killed is removed as a whole."""

from __future__ import annotations

import contextlib
import os
import signal
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from lab import cgroups, cluster, network, processes, real_node, wait
from lab.processes import Daemon
from tests.lab.test_real_node import run_pod
from tests.support.patience import PATIENCE_S

if TYPE_CHECKING:
    from lab.layout import Layout

pytestmark = [pytest.mark.apiserver, pytest.mark.kubelet]


@pytest.mark.parametrize("namespace_dies", [True, False], ids=["everything", "all-but-the-containers"])
def test_down_removes_everything_after_a_crash(own_layout: Layout, node_support: None, *, namespace_dies: bool) -> None:
    """After SIGKILL of every process, shims included, `down` leaves no process, mount, address, bridge or group."""
    cluster.up(own_layout)
    run_pod(own_layout, "victim")
    victims = set(processes.strays(own_layout))
    anchor = Daemon(own_layout, "node").pid
    assert anchor is not None
    first = int(Path(f"/proc/{anchor}/task/{anchor}/children").read_text())
    containers = _containers(own_layout)
    assert containers
    spared = set() if namespace_dies else {anchor, first}
    # Frozen first, because a process that survives another for a moment would clean up after it.
    for number in (signal.SIGSTOP, signal.SIGKILL):
        for victim in victims - spared:
            with contextlib.suppress(ProcessLookupError):  # the exit of one process may end another
                os.kill(victim, number)
    wait.until(lambda: set(processes.strays(own_layout)) <= spared, what="end of every process", timeout_s=PATIENCE_S)
    if namespace_dies:
        # The kernel kills them with the first process of their namespace, which is no longer a stray by then.
        wait.until(
            lambda: not any(map(processes.Status.of, containers)), what="end of the containers", timeout_s=PATIENCE_S
        )
    else:
        assert any(map(processes.Status.of, containers))

    cluster.down(own_layout)
    assert processes.strays(own_layout) == []
    assert [pid for pid in containers if processes.Status.of(pid)] == []
    assert real_node.leftovers(own_layout) == []
    assert not network.has_bridge(own_layout)
    assert str(own_layout.root) not in Path("/proc/self/mountinfo").read_text()
    assert not own_layout.node.exists()


def _containers(layout: Layout) -> set[int]:
    """Return the process IDs of the node's pods."""
    lists = [file for group in cgroups.existing(layout) for file in group.rglob("cgroup.procs")]
    return {int(pid) for file in lists for pid in file.read_text().split()}
