"""What preflight says of nodes whose containers would not get their cards, each a common misconfiguration."""

import msgspec
import pytest

from allocation.delivery import NodeDelivery, Toolkit
from allocation.fractions import NodeCondition
from cli.installation.rules import Rules
from cli.preflight.cluster_snapshot import RuntimeClass
from cluster.gpu_node_status import GpuNodeStatus
from cluster.metadata import ObjectMeta
from tests.cli.preflight.snapshots import about, lease, node, report_on, status
from webhook.settings import WebhookSettings

OPERATOR = Toolkit("cdi", "1.18.0", "management.nvidia.com/gpu")
WITH_CLASS = Rules(webhook=WebhookSettings(runtime_class_name="nvidia"))
CLASS = RuntimeClass(ObjectMeta(name="nvidia"), "nvidia")


def reporting(delivery: NodeDelivery) -> GpuNodeStatus:
    """Return the report of an agent with this delivery."""
    reported = status()
    assert reported.status is not None
    return msgspec.structs.replace(reported, status=msgspec.structs.replace(reported.status, delivery=delivery))


@pytest.mark.parametrize(
    ("delivery", "advertised", "severity", "what", "remedy"),
    [
        (
            NodeDelivery("env", OPERATOR),
            None,
            "blocks",
            "toolkit 1.18.0 in mode cdi does not resolve bare UUIDs",
            "agent.delivery to cdi",
        ),
        (
            NodeDelivery("cdi", Toolkit("legacy", "1.17.8")),
            None,
            "blocks",
            "toolkit 1.17.8 in mode legacy does not resolve CDI names",
            "agent.delivery to env",
        ),
        (
            NodeDelivery("cdi", msgspec.structs.replace(OPERATOR, accepts_variable=False)),
            None,
            "blocks",
            "accept-nvidia-visible-devices-envvar-when-unprivileged is false",
            "toolkit.env[0].name=ACCEPT_NVIDIA_VISIBLE_DEVICES_ENVVAR_WHEN_UNPRIVILEGED",
        ),
        (
            NodeDelivery("nvidia-nri", has_nri_socket=False),
            None,
            "blocks",
            "accepts no NRI plugins",
            "--set cdi.nriPluginEnabled=true",
        ),
        (
            NodeDelivery("cdi", OPERATOR),
            "4",
            "changes",
            "its device plugin advertises 4 nvidia.com/gpu",
            "--set devicePlugin.enabled=false",
        ),
    ],
    ids=["bare-uuids", "old-toolkit", "variable-refused", "no-nri", "device-plugin"],
)
def test_misconfigured_node_is_named_with_the_flag_that_corrects_it(
    delivery: NodeDelivery, advertised: str | None, severity: str, what: str, remedy: str
) -> None:
    """The next step is a setting of Tranche or a flag of NVIDIA's chart, ready to be copied."""
    report = report_on(
        WITH_CLASS,
        nodes=[node(advertised=advertised)],
        statuses=[reporting(delivery)],
        leases=[lease()],
        runtime_class=CLASS,
    )
    found = about(report, "node n1", what)
    assert found.severity == severity
    assert remedy in found.next_step
    assert report.is_clear == (severity != "blocks")
    assert report.nodes[0].delivery == delivery.mode
    assert report.nodes[0].next_step == found.next_step


def test_node_of_a_stock_operator_has_no_finding() -> None:
    """Its toolkit resolves what the scheduler writes, in the runtime that admission names."""
    report = report_on(
        WITH_CLASS, nodes=[node()], statuses=[reporting(NodeDelivery("cdi", OPERATOR))], leases=[lease()]
    )
    assert not [each for each in report.findings if "node" in each.objects[0]]


def test_missing_runtime_class_name_is_noticed() -> None:
    """The operator's runtime is not the default one, so containers would start without cards."""
    report = report_on(nodes=[node()], statuses=[reporting(NodeDelivery("cdi", OPERATOR))], leases=[lease()])
    found = about(report, "node n1", "writes no RuntimeClass")
    assert (found.severity, "webhook.runtime_class_name to nvidia" in found.next_step) == ("changes", True)
    by_annotation = reporting(NodeDelivery("nvidia-nri", has_nri_socket=True))
    report = report_on(nodes=[node()], statuses=[by_annotation], leases=[lease()])
    assert not [each for each in report.findings if "RuntimeClass" in each.what]


def test_unconfirmed_nri_plugin_is_a_note() -> None:
    """The agent sees the socket of the container runtime, not the operator's plugin."""
    delivered = reporting(NodeDelivery("nvidia-nri", has_nri_socket=True))
    report = report_on(nodes=[node()], statuses=[delivered], leases=[lease()])
    found = about(report, "node n1", "no object confirms")
    assert (found.severity, found.next_step) == ("notes", "GPU Operator: --set cdi.nriPluginEnabled=true")


def test_kai_gpu_fractioning_that_does_not_say_that_it_runs_is_noticed() -> None:
    """Nothing else would give a container its cards; its operator reports each of its nodes by a condition."""
    delivered = reporting(NodeDelivery("nvfractions", OPERATOR, has_nri_socket=True))
    states: tuple[tuple[str, tuple[NodeCondition, ...]], ...] = (
        ("does not say that it runs there", ()),
        ("is not ready there", (NodeCondition("gpu-fractioning.nvidia.com/Ready", "False"),)),
    )
    for said, conditions in states:
        served = node()
        served.status.conditions = conditions
        found = about(
            report_on(WITH_CLASS, nodes=[served], statuses=[delivered], leases=[lease()]),
            *("node n1", f"kai-gpu-fractioning {said}"),
        )
        assert (found.severity, "GpuFractioningConfig" in found.next_step) == ("blocks", True)
    served = node()
    served.status.conditions = (NodeCondition("gpu-fractioning.nvidia.com/Ready", "True"),)
    report = report_on(WITH_CLASS, nodes=[served], statuses=[delivered], leases=[lease()])
    assert not [each for each in report.findings if "node n1" in each.objects]


def test_agent_that_delivers_cards_itself_needs_nothing_of_nvidias_software() -> None:
    """It says whether it can: neither a toolkit, nor the operator's plugin, nor a RuntimeClass is asked for."""
    delivered = reporting(NodeDelivery("nri", is_registered=True))
    report = report_on(nodes=[node()], statuses=[delivered], leases=[lease()])
    assert not [each for each in report.findings if "node n1" in each.objects]
    delivered = reporting(NodeDelivery("nri", is_registered=False))
    report = report_on(nodes=[node()], statuses=[delivered], leases=[lease()])
    found = about(report, "node n1", "its agent is not registered as a plugin of the container runtime")
    assert (found.severity, "component manifests/nri" in found.next_step) == ("blocks", True)


@pytest.mark.parametrize("advertised", ["80", "0"])
def test_agent_that_is_the_device_plugin_is_none_that_could_be_removed(advertised: str) -> None:
    """What its kubelet advertises needs no advice about another plugin; whether it works the agent says."""
    delivered = reporting(NodeDelivery("device-plugin", is_registered=True))
    report = report_on(nodes=[node(advertised=advertised)], statuses=[delivered], leases=[lease()])
    assert not [each for each in report.findings if "node n1" in each.objects]
    delivered = reporting(NodeDelivery("device-plugin", is_registered=False))
    report = report_on(nodes=[node(advertised=advertised)], statuses=[delivered], leases=[lease()])
    found = about(report, "node n1", "its agent is not registered as a device plugin of the kubelet")
    assert (found.severity, "component manifests/device-plugin" in found.next_step) == ("blocks", True)


def test_unseen_toolkit_is_a_note() -> None:
    """An agent without host paths cannot confirm anything; that blocks nothing."""
    report = report_on(WITH_CLASS, nodes=[node()], statuses=[reporting(NodeDelivery("cdi"))], leases=[lease()])
    assert about(report, "node n1", "nothing confirms").severity == "notes"
