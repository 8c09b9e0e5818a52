"""Preflight names each of five misconfigured nodes, the setting that is wrong, and the flag that corrects it."""

import json
import subprocess
import sys
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import msgspec
import pytest

from agent.publishing import publisher
from cli.installation.rules import Rules
from cli.preflight.cluster_snapshot import ClusterPolicy, GpuNode, RuntimeClass
from cli.preflight.report import Report
from cluster.gpu_node_status import GpuNodeStatus
from lab import kubectl
from lab.client import client
from lab.layout import Layout
from tests.cli.preflight.misconfigured_nodes import CDI, MISCONFIGURED, OPERATOR, RUNTIME_CLASS, MisconfiguredNode
from tests.cli.preflight.snapshots import about, lease, report_on
from webhook.settings import WebhookSettings

ROOT = Path(__file__).parents[3]
WITH_CLASS = Rules(webhook=WebhookSettings(runtime_class_name="nvidia"))
SOUND = MisconfiguredNode("sound", "cdi", CDI, (), "")


def evaluated(*nodes: MisconfiguredNode, policy: dict[str, Any] | None = None, **runtime_class: Any) -> Report:
    """Return the report on a cluster with these nodes; `policy` replaces the pods of the GPU Operator."""
    pods = [msgspec.Raw(json.dumps(pod).encode()) for each in nodes for pod in each.pods if policy is None]
    return report_on(
        WITH_CLASS,
        nodes=[msgspec.convert(each.node, GpuNode) for each in nodes],
        statuses=[msgspec.convert(each.status, GpuNodeStatus) for each in nodes],
        leases=[lease(each.name) for each in nodes],
        pods=pods,
        runtime_class=msgspec.convert({**RUNTIME_CLASS, **runtime_class}, RuntimeClass),
        cluster_policies=[] if policy is None else [msgspec.convert(policy, ClusterPolicy)],
    )


def findings_on(report: Report, name: str) -> list[str]:
    """Return the statements about a node."""
    return [each.what for each in report.findings if f"node {name}" in each.objects]


@pytest.mark.parametrize("node", MISCONFIGURED, ids=lambda node: node.name)
def test_misconfiguration_is_named_with_node_setting_and_flag(node: MisconfiguredNode) -> None:
    """The agent sees none of NVIDIA's configuration; the objects of the cluster tell enough."""
    report = evaluated(node)
    found = about(report, f"node {node.name}", *node.words)
    assert found.severity == "blocks"
    assert node.flag in found.next_step
    assert report.nodes[0].next_step == found.next_step
    assert len(findings_on(report, node.name)) == 1


def test_sound_node_of_the_operator_has_no_finding() -> None:
    """Toolkit in mode cdi, delivery cdi, a RuntimeClass that covers the node, and no device plugin."""
    report = evaluated(SOUND)
    assert findings_on(report, "sound") == []
    assert report.is_clear


@pytest.mark.parametrize(
    ("spec", "delivery", "words", "flag"),
    [
        (
            {"cdi": {"enabled": True, "nriPluginEnabled": True}},
            "cdi",
            "NRI plugin runs there",
            "delivery.nvidiaNri=true",
        ),
        ({"cdi": {"enabled": True}}, "nvidia-nri", "NRI plugin does not run there", "cdi.nriPluginEnabled=true"),
        ({"cdi": {"enabled": True}}, "env", "does not resolve bare UUIDs", "config.agent.delivery=cdi"),
        (
            {"toolkit": {"version": "v1.14.6", "env": []}},
            "cdi",
            "toolkit 1.14.6 in mode auto does not resolve CDI names",
            "config.agent.delivery=env",
        ),
    ],
)
def test_cluster_policy_speaks_for_nodes_whose_toolkit_pod_is_not_seen(
    spec: dict[str, Any], delivery: str, words: str, flag: str
) -> None:
    """With `-n`, preflight reads pods of one namespace only."""
    policy = {"metadata": {"name": "cluster-policy"}, "spec": spec}
    managed = {**SOUND.labels, "nvidia.com/gpu.deploy.container-toolkit": "true"}
    node = msgspec.structs.replace(SOUND, delivery=delivery, labels=managed)
    found = about(evaluated(node, policy=policy), "node sound", words)
    assert "ClusterPolicy cluster-policy" in found.what
    assert flag in found.next_step
    unmanaged = msgspec.structs.replace(SOUND, delivery=delivery)
    assert not [each for each in findings_on(evaluated(unmanaged, policy=policy), "sound") if "ClusterPolicy" in each]


@pytest.mark.parametrize(("handlers", "blocks"), [([], False), (["", "nvidia"], False), (["", "runc"], True)])
def test_container_runtime_must_have_the_handler_of_the_class(handlers: list[str], *, blocks: bool) -> None:
    """A runtime that reports its handlers and lacks this one starts no pod of the class; older ones report none."""
    node = SOUND.node
    node["status"]["runtimeHandlers"] = [{"name": each, "features": {}} for each in handlers]
    report = report_on(
        WITH_CLASS,
        nodes=[msgspec.convert(node, GpuNode)],
        statuses=[msgspec.convert(SOUND.status, GpuNodeStatus)],
        leases=[lease("sound")],
        runtime_class=msgspec.convert(RUNTIME_CLASS, RuntimeClass),
    )
    assert any("has no handler nvidia" in each for each in findings_on(report, "sound")) == blocks


@pytest.mark.parametrize(
    ("strategies", "severity", "words"),
    [
        ("envvar", "notes", "by environment variable, and may stay"),
        ("volume-mounts, envvar", "blocks", "passes devices by volume-mounts"),
        ("", "notes", "advertises enough and may stay"),
    ],
)
def test_plugin_may_stay_if_the_variable_of_the_pod_overrides_it(strategies: str, severity: str, words: str) -> None:
    """Devices passed in another way would be added to those of the allocation."""
    node = msgspec.structs.replace(SOUND, plugin={"DEVICE_LIST_STRATEGY": strategies})
    assert about(evaluated(node), "node sound", words).severity == severity


def test_missing_class_blocks_before_the_installation() -> None:
    """Admission would write the name of a class that does not exist."""
    found = about(report_on(WITH_CLASS), "RuntimeClass nvidia")
    assert found.severity == "blocks"
    assert "--set runtimeClassName=" in found.next_step
    assert not [each for each in report_on().findings if "RuntimeClass" in each.objects[0]]


@pytest.mark.parametrize("strategy", ["single", "mixed"])
def test_plugin_that_hands_out_mig_instances_of_our_node_blocks(strategy: str) -> None:
    """With `single` they count as nvidia.com/gpu, with `mixed` each profile is a resource."""
    divided = msgspec.structs.replace(SOUND, card_mode="mig")
    node = divided.node
    node["metadata"]["labels"]["nvidia.com/mig.strategy"] = strategy
    node["status"]["allocatable"]["nvidia.com/gpu" if strategy == "single" else "nvidia.com/mig-1g.5gb"] = "7"
    report = report_on(
        nodes=[msgspec.convert(node, GpuNode)],
        statuses=[msgspec.convert(divided.status, GpuNodeStatus)],
        leases=[lease("sound")],
    )
    found = about(report, "node sound", "hands out MIG instances", f"nvidia.com/mig.strategy={strategy}")
    assert "nvidia.com/gpu.deploy.device-plugin=false" in found.next_step


def create(layout: Layout, nodes: Sequence[MisconfiguredNode]) -> None:
    """Create the nodes with their reports, heartbeats and pods."""
    kubectl.run(layout, "apply", "-f", str(ROOT / "manifests" / "base" / "crds"))
    kubectl.run(layout, "wait", "--for=condition=Established", "crd", "--all")
    client(layout).apply(
        RUNTIME_CLASS,
        *(
            {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": each}}
            for each in (OPERATOR, "tranche-system")
        ),
        {"apiVersion": "v1", "kind": "ServiceAccount", "metadata": {"name": "default", "namespace": OPERATOR}},
    )
    for node in nodes:
        beat = publisher.heartbeat(node.name, identity="agent", seconds=3600, unix=time.time())
        client(layout).apply(node.node, node.status, beat, *node.pods)
        for kind, each in (("node", node.node), ("gns", node.status)):
            status = json.dumps({"status": each["status"]})
            kubectl.run(layout, "patch", kind, node.name, "--subresource=status", "--type=merge", "-p", status)


@pytest.mark.apiserver
def test_preflight_reads_all_five_from_a_cluster(empty_cluster: Layout, tmp_path: Path) -> None:
    """Each misconfigured node is listed under BLOCKS with setting and flag, and a sound one is not."""
    create(empty_cluster, (*MISCONFIGURED, SOUND))
    configuration = tmp_path / "configuration.yaml"
    configuration.write_text("webhook: {runtime_class_name: nvidia}\n")
    command = [sys.executable, "-m", "cli", "preflight", f"--kubeconfig={empty_cluster.kubeconfig}"]
    done = subprocess.run(
        [*command, f"--config={configuration}"], cwd=ROOT, capture_output=True, text=True, timeout=60, check=False
    )
    assert done.returncode == 1, done.stderr
    blocks = done.stdout.partition("\nBLOCKS\n")[2].partition("\nCHANGES\n")[0].split("\n  node ")[1:]
    by_node = {block.partition("\n")[0]: block for block in blocks}
    assert sorted(by_node) == sorted(node.name for node in MISCONFIGURED)
    for node in MISCONFIGURED:
        _, what, step = by_node[node.name].splitlines()[:3]
        assert all(words in what for words in node.words), what
        assert step.startswith("    -> ")
        assert node.flag in step
