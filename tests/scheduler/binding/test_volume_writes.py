"""What the scheduler writes to claims and volumes changes nothing that another controller has decided."""

from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from scheduler.binding import volume_writes
from scheduler.binding.volume_writes import NotBoundError
from scheduler.volumes.objects import BOUND_BY_CONTROLLER, SELECTED_NODE, Claim, PersistentVolume
from tests.scheduler.support.merge_patch import merged

UID = "uid-data"


def claim(*, uid: str = UID, node: str = "", volume: str = "") -> Claim:
    """Return the claim default/data."""
    annotations = {SELECTED_NODE: node} if node else {}
    metadata = {
        "name": "data",
        "namespace": "default",
        "uid": uid,
        "resourceVersion": "7",
        "annotations": annotations,
    }
    return msgspec.convert({"metadata": metadata, "spec": {"volumeName": volume}}, Claim)


def volume(
    *, uid: str = "", name: str = "", by_controller: bool = False, phase: str = "Available", deleted: str | None = None
) -> PersistentVolume:
    """Return a volume that is reserved for a claim, by name or by UID."""
    reference = {"namespace": "default", "name": name or "data", "uid": uid} if uid or name else None
    metadata = {
        "name": "pv",
        "annotations": {BOUND_BY_CONTROLLER: "yes"} if by_controller else {},
        "deletionTimestamp": deleted,
    }
    body = {"metadata": metadata, "spec": {"claimRef": reference}, "status": {"phase": phase}}
    return msgspec.convert(body, PersistentVolume)


def patched(target: PersistentVolume, patch: dict[str, Any]) -> PersistentVolume:
    """Return a volume after a merge patch."""
    return msgspec.convert(merged(msgspec.to_builtins(target), patch), PersistentVolume)


def test_a_selection_is_written_once() -> None:
    """Nothing is written to a claim that names the node already, or has a volume."""
    assert volume_writes.select_node(claim(), node="n1", uid=UID) == {
        "metadata": {"annotations": {SELECTED_NODE: "n1"}}
    }
    assert volume_writes.select_node(claim(node="n1"), node="n1", uid=UID) is None
    assert volume_writes.select_node(claim(volume="pv"), node="n1", uid=UID) is None


@pytest.mark.parametrize("found", [claim(node="n2"), claim(uid="uid-other")])
def test_a_claim_that_somebody_else_changed_is_left_alone(found: Claim) -> None:
    """Another scheduler selected another node, or the claim is a new one of the same name."""
    with pytest.raises(NotBoundError):
        volume_writes.select_node(found, node="n1", uid=UID)
    assert volume_writes.deselect_node(found, node="n1", uid=UID) is None


def test_the_selection_of_a_claim_with_a_volume_stays() -> None:
    """It is taken back from an unbound claim only."""
    assert volume_writes.deselect_node(claim(node="n1", volume="pv"), node="n1", uid=UID) is None
    assert volume_writes.deselect_node(claim(node="n1"), node="n1", uid=UID) is not None


@pytest.mark.parametrize(
    "found", [volume(uid="uid-other"), volume(name="other"), volume(deleted="2026-01-01T00:00:00Z")]
)
def test_a_volume_of_another_claim_is_not_reserved(found: PersistentVolume) -> None:
    """Nor is one that is being deleted."""
    with pytest.raises(NotBoundError):
        volume_writes.reserve(found, claim=claim())


@pytest.mark.parametrize("phase", ["Bound", "Released", "Failed"])
def test_a_volume_that_a_controller_has_bound_is_not_released(phase: str) -> None:
    """Its data have an owner."""
    assert volume_writes.release(volume(uid=UID, by_controller=True, phase=phase), claim_uid=UID) is None


@given(is_named=st.booleans(), phase=st.sampled_from(["", "Pending", "Available"]))
def test_taking_back_restores_what_was_there(is_named: bool, phase: str) -> None:  # noqa: FBT001
    """A volume that a user reserved by name stays reserved by name; any other is free again."""
    before = volume(name="data" if is_named else "", phase=phase)
    patch = volume_writes.reserve(before, claim=claim())
    assert patch is not None
    reserved = patched(before, patch)
    assert reserved.spec.claim_ref is not None
    assert reserved.spec.claim_ref.uid == UID
    assert volume_writes.reserve(reserved, claim=claim()) is None
    back = volume_writes.release(reserved, claim_uid=UID)
    assert back is not None
    assert patched(reserved, back) == before
