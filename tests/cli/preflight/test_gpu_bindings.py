"""Findings about GPUBindings on a cluster with beclab's fork of HAMi."""

import pytest

from allocation.settings import AllocationSettings, BindingSettings, BindingsMode
from cli.installation.rules import Rules
from cli.preflight.cluster_snapshot import NamedObject
from cluster.metadata import ObjectMeta
from tests.cli.preflight.snapshots import about, report_on

BOUND = [NamedObject(ObjectMeta("chat-alice")), NamedObject(ObjectMeta("chat-bob"))]


def rules(mode: BindingsMode) -> Rules:
    """Return rules with a mode of bindings."""
    return Rules(allocation=AllocationSettings(bindings=BindingSettings(mode=mode)))


def test_bindings_that_would_not_be_applied_block_the_switch() -> None:
    """After it, any pod could get a card that belongs to one application of one user."""
    report = report_on(rules("off"), gpu_bindings=BOUND)
    finding = about(report, "GPUBinding chat-alice")
    assert finding.severity == "blocks"
    assert finding.objects == ("GPUBinding chat-alice", "GPUBinding chat-bob")
    assert "allocation.bindings.mode is off" in finding.what
    assert "manifests/gpubindings" in finding.next_step


@pytest.mark.parametrize("mode", ["labelled", "required"])
def test_applied_bindings_are_no_finding(mode: BindingsMode) -> None:
    """Nothing changes for these applications."""
    assert not [each for each in report_on(rules(mode), gpu_bindings=BOUND).findings if "binding" in each.what]


def test_off_without_bindings_says_nothing() -> None:
    """Most clusters have none."""
    assert not [each for each in report_on(rules("off")).findings if "binding" in each.what]
