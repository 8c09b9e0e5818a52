"""Pods that run are counted as the scheduler would count them, and what it cannot count closes a node."""

import msgspec

from allocation import record
from allocation.allocation import Allocation, CardShare
from tests.cli.migration.surveys import about, container, judged, pod

ALLOCATED = "hami.io/vgpu-devices-allocated"
OURS = record.encode(Allocation("n1", {"main": (CardShare("GPU-a", 0, 3000, 50),)}))


def test_each_pod_is_counted_by_what_it_was_given() -> None:
    """Ours, HAMi's, HAMi's with lost places; ended ones and those without GPU are nothing."""
    two = (container("web", gpu=None), container("train"))
    report = judged(
        pods=[
            pod("ours", node="n1", annotations={"gpu.scheduling/allocation": OURS}),
            pod("theirs", *two, node="n1", annotations={ALLOCATED: ";GPU-a,NVIDIA,3000,5:;"}),
            pod("misaligned", *two, node="n1", annotations={ALLOCATED: "GPU-a,NVIDIA,3000,5:;"}),
            pod("ended", node="n1", phase="Succeeded"),
            pod("plain", container(gpu=None), node="n1"),
        ]
    )
    assert report.summary.running == {"HAMi's": 1, "HAMi's, misaligned": 1, "ours": 1}
    assert about(report, "issue 2899").objects == ("pod team/misaligned",)
    assert report.is_clear


def test_a_pod_that_nobody_counts_closes_its_node() -> None:
    """No allocation, one that cannot be read, or one for another node: the reason is the scheduler's."""
    elsewhere = record.encode(Allocation("n2", {"main": (CardShare("GPU-a", 0, 3000, 50),)}))
    report = judged(
        pods=[
            pod("none", node="n1"),
            pod("broken", node="n2", annotations={ALLOCATED: "GPU-a,NVIDIA,much,5:;"}),
            pod("elsewhere", node="n1", annotations={"gpu.scheduling/allocation": elsewhere}),
        ]
    )
    assert report.summary.running == {"uncounted": 3}
    assert "it asks for a GPU and has no allocation" in about(report, "pod team/none").what
    assert "node n2 is closed" in about(report, "pod team/broken").what
    assert "its allocation is for node n2" in about(report, "pod team/elsewhere").what
    assert not report.is_clear


def test_a_pod_that_cannot_be_read_is_a_gap_not_a_failure() -> None:
    """Nothing that a cluster holds ends the command."""
    report = judged(pods=[msgspec.Raw(b'{"metadata": 3}')])
    assert "a pod cannot be read" in about(report, "cannot be judged whole").what
