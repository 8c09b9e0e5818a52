"""Findings about other DRA drivers on the nodes of Tranche, and about nodes whose cards Kubernetes allocates."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import msgspec
import pytest

from cli.installation import rules
from cli.installation.rules import Rules
from cli.preflight.cluster_snapshot import GpuNode
from cli.preflight.report import Report
from cluster.dra import DeviceClass, DeviceTaintRule, ResourceClaim, ResourceSlice
from cluster.server_version import ServerVersion
from scheduler.observation_settings import DraSettings
from tests.cli.preflight.snapshots import about, report_on
from tests.scheduler.support import builders, dra

if TYPE_CHECKING:
    from pathlib import Path

    from cluster.gpu_node_status import Allocator, GpuNodeStatus

CLASS = msgspec.convert(dra.device_class(), DeviceClass)
SLICE = msgspec.convert(dra.slice_of("n1", "GPU-n1-0"), ResourceSlice)
CLAIM = msgspec.convert(dra.claim("c", "n1", "gpu-0"), ResourceClaim)


def node(name: str = "n1", *, labels: dict[str, str] | None = None) -> GpuNode:
    """Return a node, by default one without a mark of Tranche."""
    return msgspec.convert({"metadata": {"name": name, "labels": labels or {}}}, GpuNode)


def rule(**selector: str) -> DeviceTaintRule:
    """Return a rule of the guard."""
    taint = {"key": "gpu.scheduling/ledger", "effect": "NoSchedule"}
    spec: dict[str, Any] = {"deviceSelector": selector, "taint": taint}
    return msgspec.convert({"metadata": {"name": "r"}, "spec": spec}, DeviceTaintRule)


def on_our_node(chosen: Rules | None = None, **parts: Any) -> Report:
    """Return the report on a cluster whose node n1 has an agent."""
    return report_on(chosen, **{"nodes": [node()], "statuses": [builders.status("n1")], **parts})


def about_dra(report: Report) -> list[str]:
    """Return the objects of all findings of this module."""
    words = ("DRA driver", "satisfies")
    return [name for each in report.findings for name in each.objects if any(word in each.what for word in words)]


@pytest.mark.parametrize(("chosen", "severity"), [(Rules(extender=True), "blocks"), (Rules(), "changes")])
def test_class_for_our_resource(chosen: Rules, severity: str) -> None:
    """In extender mode no pod would be bound; in loop mode pods of other schedulers get cards."""
    finding = about(report_on(chosen, device_classes=[CLASS]), "DeviceClass gpu.nvidia.com")
    assert finding.severity == severity
    assert "satisfies nvidia.com/gpu, too" in finding.what
    assert "remove its extendedResourceName" in finding.next_step


def test_other_classes_are_no_finding() -> None:
    """Nearly every class has no extended resource, or another one."""
    classes = [msgspec.convert(dra.device_class(name), DeviceClass) for name in ("", "example.com/gpu")]
    assert about_dra(report_on(Rules(extender=True), device_classes=classes)) == []


def test_devices_on_our_node_block_without_the_guard() -> None:
    """A node is ours by its report, or by the label of agents before there is one."""
    for report in (
        on_our_node(resource_slices=[SLICE]),
        report_on(nodes=[node(labels={"gpu": "on"})], resource_slices=[SLICE]),
    ):
        finding = about(report, "node n1", "DRA driver")
        assert finding.severity == "blocks"
        assert "manifests/dra-guard" in finding.next_step


@pytest.mark.parametrize("selector", [{"driver": dra.DRIVER}, {"driver": dra.DRIVER, "pool": "n1"}, {}])
def test_guard_keeps_pods_off_the_devices(selector: dict[str, str]) -> None:
    """By driver, or by driver and pool."""
    assert about_dra(on_our_node(resource_slices=[SLICE], device_taint_rules=[rule(**selector)])) == []


@pytest.mark.parametrize("selector", [{"driver": "other"}, {"pool": "n2"}, {"device": "gpu-0"}])
def test_rule_for_other_devices_is_not_a_guard(selector: dict[str, str]) -> None:
    """It leaves devices of the node open."""
    assert about_dra(on_our_node(resource_slices=[SLICE], device_taint_rules=[rule(**selector)])) == ["node n1"]


def test_devices_of_other_nodes_and_drivers_are_no_finding() -> None:
    """Only those that may be cards of ours."""
    other = msgspec.convert(dra.slice_of("n1", "x", driver="other"), ResourceSlice)
    empty = msgspec.convert(dra.slice_of("n1"), ResourceSlice)
    assert about_dra(on_our_node(resource_slices=[other, empty])) == []
    assert about_dra(report_on(nodes=[node()], resource_slices=[SLICE], resource_claims=[CLAIM])) == []
    without = Rules(dra=DraSettings(foreign_drivers=()))
    assert about_dra(on_our_node(without, resource_slices=[SLICE], resource_claims=[CLAIM])) == []


def test_claims_with_devices_on_our_nodes_are_listed() -> None:
    """Others, and claims without devices, are not."""
    claims = [
        dra.claim("c", "n1", "gpu-0"),
        dra.claim("d", "n1", "gpu-1"),
        dra.claim("e", "n2", "gpu-0"),
        dra.claim("f"),
    ]
    report = on_our_node(resource_claims=[msgspec.convert(each, ResourceClaim) for each in claims])
    finding = about(report, "ResourceClaim default/c")
    assert (finding.severity, finding.objects) == (
        "notes",
        ("ResourceClaim default/c", "ResourceClaim default/d"),
    )


def test_drivers_are_those_of_the_configuration(tmp_path: Path) -> None:
    """As the scheduler reads them."""
    file = tmp_path / "config.yaml"
    file.write_text("scheduler: {dra: {foreign_drivers: [gpu.example.com]}}", encoding="utf-8")
    slices = [msgspec.convert(dra.slice_of("n1", "x", driver="gpu.example.com"), ResourceSlice), SLICE]
    finding = about(on_our_node(rules.of_file(str(file)), resource_slices=slices), "node n1", "DRA driver")
    assert "DRA driver gpu.example.com offers" in finding.what


OWN_CLASS = msgspec.convert({"metadata": {"name": "gpu.scheduling"}}, DeviceClass)


def reported(allocator: Allocator) -> GpuNodeStatus:
    """Return the report of a node with an allocator."""
    made = builders.status("n1")
    assert made.status is not None
    made.status.allocator = allocator
    return made


@pytest.mark.parametrize(("minor", "is_refused"), [("35", True), ("36", False), ("37+", False)])
def test_component_on_a_cluster_that_is_too_old(minor: str, *, is_refused: bool) -> None:
    """It is refused below 1.36, by its class or by a node; without both there is nothing to say."""
    version = ServerVersion("1", minor)
    for parts in ({"device_classes": [OWN_CLASS]}, {"statuses": [reported("dra")]}):
        report = report_on(version=version, **parts)
        found = [each for each in report.findings if "needs Kubernetes 1.36" in each.what]
        assert [each.severity for each in found] == (["blocks"] if is_refused else [])
    report = report_on(version=version, statuses=[reported("ledger"), builders.status("n2")])
    assert not any("needs Kubernetes" in each.what for each in report.findings)


def test_label_without_the_component() -> None:
    """The agents do not read it, or no pod could claim the cards."""
    labelled = node(labels={"gpu.scheduling/allocator": "dra"})
    finding = about(report_on(nodes=[labelled]), "node n1", "asks for DRA")
    assert "manifests/dra" in finding.next_step
    report = report_on(nodes=[labelled], device_classes=[OWN_CLASS])
    assert not any("asks for DRA" in each.what for each in report.findings)


@pytest.mark.parametrize(("allocator", "words"), [("draining", "are left to end"), ("dra", "are for ResourceClaims")])
def test_nodes_that_are_not_the_ledgers(allocator: Allocator, words: str) -> None:
    """They take no pods of Tranche, which is as it should be."""
    report = report_on(nodes=[node()], statuses=[reported(allocator)], device_classes=[OWN_CLASS])
    assert about(report, "node n1", words).severity == "notes"
