"""A node whose driver is gone takes no pod; it takes pods again, also if the same cards are reported as before."""

import asyncio
from typing import Literal

from cluster.gpu_node_status import GpuNodeStatus
from scheduler.queue.entry import Rejected
from tests.scheduler.support.builders import pod, state, status


def report(problem: Literal["DriverMissing", "NoCards"]) -> GpuNodeStatus:
    """Return the report of an agent whose node has a problem; its cards are those of a report without one."""
    reported = status("n1")
    assert reported.status is not None
    reported.status.state = problem
    return reported


async def test_a_driver_that_is_back_retries_waiting_pods() -> None:
    """The new report is an event that lifts the reason, whatever it says of the cards."""
    made = state("n1")
    made.agent_reports.set(report("DriverMissing"))
    made.set_pod(pod("a", memory=1))
    entry = await made.queue.pop()
    made.queue.add_unschedulable(entry, Rejected("rejected", frozenset({"DriverMissing"})))
    made.agent_reports.set(report("NoCards"), report("DriverMissing"))
    assert made.queue.depths()["unschedulable"] == 1
    made.agent_reports.set(status("n1"), report("NoCards"))
    async with asyncio.timeout(20):
        assert await made.queue.pop() is entry


def test_a_report_that_was_deleted_says_nothing() -> None:
    """The node may be served in another way then."""
    made = state("n1")
    made.agent_reports.set(report("NoCards"))
    assert made.closed_nodes.now()["n1"].code == "NoCards"
    made.agent_reports.drop(report("NoCards"))
    assert "n1" not in made.node_problems.rejections
