"""Running pods are counted as the scheduler counts them, and a pod that it cannot count closes its node."""

import msgspec

from allocation.allocation import Allocation, CardShare
from allocation.wire import record
from tests.cli.preflight.snapshots import about, container, pod, report_on

ALLOCATED = "hami.io/vgpu-devices-allocated"
OURS = record.encode(Allocation("n1", {"main": (CardShare("GPU-a", 0, 3000, 50),)}))


def test_each_pod_is_counted_by_its_allocation() -> None:
    """Allocations are ours, HAMi's, or HAMi's with lost entries; finished pods and pods without GPU do not count."""
    two = (container("web", gpu=None), container("train"))
    report = report_on(
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


def test_an_uncounted_pod_closes_its_node() -> None:
    """A missing or unreadable allocation, or one for another node, is reported with the scheduler's reason."""
    elsewhere = record.encode(Allocation("n2", {"main": (CardShare("GPU-a", 0, 3000, 50),)}))
    report = report_on(
        pods=[
            pod("none", node="n1"),
            pod("broken", node="n2", annotations={ALLOCATED: "GPU-a,NVIDIA,much,5:;"}),
            pod("elsewhere", node="n1", annotations={"gpu.scheduling/allocation": elsewhere}),
        ]
    )
    assert report.summary.running == {"uncounted": 3}
    assert "it requests a GPU and has no allocation" in about(report, "pod team/none").what
    assert "node n2 is closed" in about(report, "pod team/broken").what
    assert "its allocation is for node n2" in about(report, "pod team/elsewhere").what
    assert not report.is_clear


def test_an_unreadable_pod_is_reported() -> None:
    """It blocks the switch, and does not end the command."""
    report = report_on(pods=[msgspec.Raw(b'{"metadata": 3}')])
    assert "a pod cannot be read" in about(report, "cannot be read completely").what


def test_pods_of_another_scheduler_with_our_annotations_are_named() -> None:
    """They have the indexes of their cards and no allocation: with a GPU resource they close their node.

    Without, as for a claim alone, they are not counted, and their cards would be given to other pods.
    """
    left = {"gpu.scheduling/allocated": "0"}
    report = report_on(
        pods=[
            pod("with-resource", node="n1", annotations=left),
            pod("claim-only", container(gpu=None), node="n2", annotations={**left, "gpu.scheduling/claim": "a"}),
            pod("ended", container(gpu=None), node="n2", phase="Succeeded", annotations=left),
            pod("ours", node="n1", annotations={**left, "gpu.scheduling/allocation": OURS}),
        ]
    )
    assert report.summary.running == {"ours": 1, "uncounted": 2}
    closes = about(report, "pod team/with-resource")
    assert (closes.severity, "another scheduler placed it" in closes.what) == ("blocks", True)
    assert "its node n1 is closed" in closes.what
    shared = about(report, "pod team/claim-only")
    assert (shared.severity, shared.objects) == ("blocks", ("pod team/claim-only",))
    assert "its cards on node n2 would be given to new pods, too" in shared.what
