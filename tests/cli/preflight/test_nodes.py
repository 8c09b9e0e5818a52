"""The mode of each node, by the table of docs/hami.md, and the findings about it."""

import pytest

from allocation.inventory import Card
from cli.preflight.cluster_snapshot import WebhookConfiguration
from cli.preflight.nodes import Mode
from cluster.metadata import ObjectMeta
from scheduler.objects import Node
from tests.cli.preflight.snapshots import about, container, hami_node, lease, node, pod, report_on, status


@pytest.mark.parametrize(
    ("observed", "mode", "severity", "next_step"),
    [
        (hami_node(), "HAMi's plugin", "changes", "manifests/hami-nodes"),
        (hami_node(advertised="0"), "without a plugin", "blocks", "cordon, drain, make the kubelet forget"),
        (hami_node(advertised=None), "without a plugin", "blocks", "start Tranche's agent"),
        (hami_node(text="not a card"), "HAMi's plugin", "blocks", "see its device plugin's log"),
        (hami_node(text='[{"id": "a b", "count": -1}]'), "HAMi's plugin", "blocks", "see its device plugin's log"),
        (hami_node(advertised="many"), "without a plugin", "blocks", "start Tranche's agent"),
        (node(advertised="8"), "NVIDIA's plugin only", "changes", "start Tranche's agent"),
        (node(advertised="0"), "NVIDIA's plugin only", "blocks", "make the kubelet forget"),
        (node(**{"nvidia.com/mig-1g.5gb": "7"}), "NVIDIA's plugin only", "blocks", "make the kubelet forget"),
        (node(labels={"nvidia.com/gpu.present": "true"}), "unknown", "notes", "start Tranche's agent"),
    ],
)
def test_the_mode_of_a_node_without_our_agent(observed: Node, mode: Mode, severity: str, next_step: str) -> None:
    """It follows from plugin and kubelet, and the next step is the one of docs/hami.md."""
    report = report_on(nodes=[observed])
    (verdict,) = report.nodes
    assert verdict.mode == mode
    found = about(report, "node n1", next_step)
    assert found.severity == severity
    assert report.is_clear == (severity != "blocks")


@pytest.mark.parametrize(
    ("advertised", "mode", "severity", "text"),
    [
        ("20", "ours, with a device plugin", "notes", "may stay"),
        ("10", "ours, with a device plugin", "notes", "may stay"),
        ("4", "ours, with a device plugin", "changes", "no more than 4 shares"),
        ("0", "ours, with a device plugin", "blocks", "remembers a device plugin"),
    ],
)
def test_the_advertised_count_is_compared_with_the_slots(advertised: str, mode: Mode, severity: str, text: str) -> None:
    """Fewer replicas than slots are a limit, and zero replicas keep every pod away."""
    report = report_on(nodes=[node(advertised=advertised)], statuses=[status()], leases=[lease()])
    assert (report.nodes[0].mode, report.nodes[0].shares) == (mode, 10)
    assert about(report, "node n1", text).severity == severity


def test_a_node_with_only_our_agent_has_no_finding() -> None:
    """Its agent is alive and no plugin runs there; a node without a GPU is not listed at all."""
    report = report_on(nodes=[node(), node("plain")], statuses=[status()], leases=[lease()])
    assert [(each.name, each.mode, each.agent, each.next_step) for each in report.nodes] == [
        ("n1", "ours", "Alive", "")
    ]
    assert not [each for each in report.findings if "node" in each.objects[0]]


@pytest.mark.parametrize("renewed", ["2027-01-15T07:58:59.000000Z", "yesterday", None])
def test_a_silent_agent_blocks(renewed: str | None) -> None:
    """An old Lease, or one without a readable time, does not prove that the agent is alive."""
    report = report_on(nodes=[node()], statuses=[status()], leases=[lease(renewed=renewed)])
    assert report.nodes[0].agent == "Silent"
    assert about(report, "node n1", "agent-n1").severity == "blocks"


def test_hamis_plugin_and_our_agent_on_one_node_block() -> None:
    """A pod of HAMi's DaemonSet must not run on a node that our agent reports."""
    plugin = pod(
        "hami-device-plugin-x",
        container(gpu=None),
        node="n1",
        labels={"app.kubernetes.io/component": "hami-device-plugin"},
    )
    report = report_on(nodes=[hami_node()], statuses=[status()], leases=[lease()], pods=[plugin])
    assert about(report, "both write the node's register annotation").severity == "blocks"


def test_mig_cards_that_a_plugin_manages_are_listed() -> None:
    """Our pods cannot get them; MIG cards that the agent manages are not listed."""
    text = '[{"id":"GPU-mig","count":7,"devmem":40960,"devcore":100,"type":"NVIDIA A100","mode":"mig","health":true}]'
    assert "GPU-mig" in about(report_on(nodes=[hami_node(text=text)]), "MIG mode").what
    ours = Card(uuid="GPU-own", index=0, memory_mib=40960, mode="mig", instances_by="agent")
    report = report_on(nodes=[node()], statuses=[status("n1", ours)], leases=[lease()])
    assert not [each for each in report.findings if "MIG" in each.what]


def test_a_drain_step_has_the_number_of_pods() -> None:
    """The next step tells the administrator how many GPU pods the drain moves."""
    running = [
        pod(f"p{each}", node="n1", annotations={"hami.io/vgpu-devices-allocated": "GPU-a,NVIDIA,3000,5:;"})
        for each in range(3)
    ]
    report = report_on(nodes=[hami_node(advertised="0")], pods=running)
    assert "3 GPU pods are there" in about(report, "node n1").next_step


def test_a_report_of_a_deleted_node_is_noted() -> None:
    """The GpuNodeStatus of a deleted node remains."""
    assert about(report_on(statuses=[status("gone")]), "GpuNodeStatus gone").severity == "notes"


def test_a_node_without_a_driver_blocks() -> None:
    """It takes no pods although its agent is alive; the finding names the driver's error and what to repair."""
    gone = status()
    assert gone.status is not None
    gone.status.state, gone.status.message = "DriverMissing", "nvmlInit: Driver Not Loaded"
    report = report_on(nodes=[node()], statuses=[gone], leases=[lease()])
    found = about(report, "node n1", "nvidia-smi")
    assert (found.severity, report.is_clear) == ("blocks", False)
    assert "DriverMissing: nvmlInit: Driver Not Loaded" in found.what


def test_a_labelled_node_without_an_agent_blocks_once_installed() -> None:
    """The label has an agent run there, so its cards are missing; before the installation no agent is expected."""
    labelled = node(labels={"gpu": "on"})
    webhook = WebhookConfiguration(ObjectMeta(name="tranche"))
    report = report_on(nodes=[labelled], webhooks=[webhook])
    assert about(report, "node n1", "see the agent's pod there").severity == "blocks"
    assert about(report_on(nodes=[labelled]), "node n1", "start Tranche's agent").severity == "notes"
