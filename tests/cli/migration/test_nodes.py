"""Each node is told its mode, by the table of docs/plugin-nodes.md, and what is in its way."""

import pytest

from allocation.inventory import Card
from cli.migration.nodes import Mode
from scheduler.objects import Node
from tests.cli.migration.surveys import about, container, hami_node, judged, lease, node, pod, status


@pytest.mark.parametrize(
    ("seen", "mode", "severity", "next_step"),
    [
        (hami_node(), "HAMi's plugin", "changes", "manifests/hami-nodes"),
        (hami_node(advertised="0"), "nobody", "blocks", "cordon, drain, make the kubelet forget"),
        (hami_node(advertised=None), "nobody", "blocks", "start our agent"),
        (hami_node(text="not a card"), "HAMi's plugin", "blocks", "see its device plugin's log"),
        (hami_node(text='[{"id": "a b", "count": -1}]'), "HAMi's plugin", "blocks", "see its device plugin's log"),
        (hami_node(advertised="many"), "nobody", "blocks", "start our agent"),
        (node(advertised="8"), "NVIDIA's plugin only", "changes", "start our agent"),
        (node(advertised="0"), "NVIDIA's plugin only", "blocks", "make the kubelet forget"),
        (node(**{"nvidia.com/mig-1g.5gb": "7"}), "NVIDIA's plugin only", "blocks", "make the kubelet forget"),
        (node(labels={"nvidia.com/gpu.present": "true"}), "unknown", "notes", "start our agent"),
    ],
)
def test_a_node_without_our_agent(seen: Node, mode: Mode, severity: str, next_step: str) -> None:
    """Its plugin and its kubelet say what it is, and the next step is that of docs/plugin-nodes.md."""
    report = judged(nodes=[seen])
    (verdict,) = report.nodes
    assert verdict.mode == mode
    found = about(report, "node n1", next_step)
    assert found.severity == severity
    assert report.is_clear == (severity != "blocks")


@pytest.mark.parametrize(
    ("advertised", "mode", "severity", "said"),
    [
        ("20", "ours, with a device plugin", "notes", "may stay"),
        ("10", "ours, with a device plugin", "notes", "may stay"),
        ("4", "ours, with a device plugin", "changes", "no more than 4 shares"),
        ("0", "ours, with a device plugin", "blocks", "remembers a device plugin"),
    ],
)
def test_what_a_kubelet_advertises_is_held_against_our_slots(
    advertised: str, mode: Mode, severity: str, said: str
) -> None:
    """Fewer replicas than slots are a bound, none at all keep every pod away."""
    report = judged(nodes=[node(advertised=advertised)], statuses=[status()], leases=[lease()])
    assert (report.nodes[0].mode, report.nodes[0].shares) == (mode, 10)
    assert about(report, "node n1", said).severity == severity


def test_a_node_as_it_shall_be_is_not_mentioned() -> None:
    """Our agent lives and no plugin is there; a node without a GPU is not even listed."""
    report = judged(nodes=[node(), node("plain")], statuses=[status()], leases=[lease()])
    assert [(each.name, each.mode, each.agent, each.next_step) for each in report.nodes] == [
        ("n1", "ours", "Alive", "")
    ]
    assert not [each for each in report.findings if "node" in each.objects[0]]


@pytest.mark.parametrize("renewed", ["2027-01-15T07:58:59.000000Z", "yesterday", None])
def test_a_silent_agent_blocks(renewed: str | None) -> None:
    """A Lease that is old, unreadable or without a time is no sign of life."""
    report = judged(nodes=[node()], statuses=[status()], leases=[lease(renewed=renewed)])
    assert report.nodes[0].agent == "Silent"
    assert about(report, "node n1", "gpu-n1").severity == "blocks"


def test_hamis_plugin_and_our_agent_are_one_too_many() -> None:
    """A pod of HAMi's DaemonSet on a node that our agent reports is in the way."""
    plugin = pod(
        "hami-device-plugin-x",
        container(gpu=None),
        node="n1",
        labels={"app.kubernetes.io/component": "hami-device-plugin"},
    )
    report = judged(nodes=[hami_node()], statuses=[status()], leases=[lease()], pods=[plugin])
    assert about(report, "both write the node's register annotation").severity == "blocks"


def test_cards_that_a_plugin_divides_are_named() -> None:
    """They are left out of what our pods may have."""
    text = '[{"id":"GPU-mig","count":7,"devmem":40960,"devcore":100,"type":"NVIDIA A100","mode":"mig","health":true}]'
    assert "GPU-mig" in about(judged(nodes=[hami_node(text=text)]), "MIG mode").what
    ours = Card(uuid="GPU-own", index=0, memory_mib=40960, mode="mig", instances_by="agent")
    report = judged(nodes=[node()], statuses=[status("n1", ours)], leases=[lease()])
    assert not [each for each in report.findings if "MIG" in each.what]


def test_a_drain_says_how_many_pods_it_moves() -> None:
    """Who is told to drain a node knows what that means."""
    running = [
        pod(f"p{each}", node="n1", annotations={"hami.io/vgpu-devices-allocated": "GPU-a,NVIDIA,3000,5:;"})
        for each in range(3)
    ]
    report = judged(nodes=[hami_node(advertised="0")], pods=running)
    assert "3 GPU pods are there" in about(report, "node n1").next_step


def test_a_report_of_a_node_that_is_gone_is_noted() -> None:
    """It stays behind where a node was deleted."""
    assert about(judged(statuses=[status("gone")]), "GpuNodeStatus gone").severity == "notes"
