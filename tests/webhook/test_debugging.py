"""Containers that are added to a running pod see no GPU."""

import copy
from collections.abc import Callable
from typing import Any

import pytest

VOID = {"name": "NVIDIA_VISIBLE_DEVICES", "value": "void"}


@pytest.fixture
def debug(admit: Callable[..., Any], pod: Callable[..., Any], gpu: Callable[..., Any]) -> Callable[..., Any]:
    """Add containers to a pod as admission left it, on top of one that was added before."""

    def add(*containers: dict[str, Any], spec: dict[str, Any] | None = None) -> Any:
        before = admit(pod(gpu())).pod
        before["spec"] |= spec or {}
        before["spec"]["ephemeralContainers"] = [{"name": "earlier"}]
        after = copy.deepcopy(before)
        after["spec"]["ephemeralContainers"] += containers
        return admit(after, operation="UPDATE", subresource="ephemeralcontainers", before=before)

    return add


def test_added_container_is_blind(debug: Callable[..., Any]) -> None:
    """It was not there when the cards were decided; what was added before can be changed no more."""
    earlier, added = debug({"name": "debugger", "image": "busybox"}).pod["spec"]["ephemeralContainers"]
    assert added["env"] == [VOID]
    assert "env" not in earlier


def test_owned_variables_are_replaced_with_a_warning(debug: Callable[..., Any]) -> None:
    """As at creation: one entry stays, and who sent another is told."""
    sent = [
        {"name": "NVIDIA_VISIBLE_DEVICES", "value": "all"},
        {"name": "MINE", "value": "1"},
        {"name": "CUDA_VISIBLE_DEVICES", "value": "0"},
    ]
    verdict = debug({"name": "debugger", "env": sent})
    assert verdict.pod["spec"]["ephemeralContainers"][1]["env"] == [VOID, {"name": "MINE", "value": "1"}]
    assert len(verdict.warnings) == 2


def test_privileged_container_is_refused(debug: Callable[..., Any]) -> None:
    """It would see every card, whatever its environment says."""
    verdict = debug({"name": "debugger", "securityContext": {"privileged": True}})
    assert not verdict.allowed
    assert "container debugger is privileged" in verdict.message


def test_what_is_managed_does_not_depend_on_the_scheduler_name_alone(debug: Callable[..., Any]) -> None:
    """References to what our scheduler writes are enough."""
    verdict = debug({"name": "debugger"}, spec={"schedulerName": "default-scheduler"})
    assert verdict.pod["spec"]["ephemeralContainers"][1]["env"] == [VOID]


def test_twice_is_once(debug: Callable[..., Any]) -> None:
    """A container that is blind already is left as it is."""
    assert debug({"name": "debugger", "env": [VOID]}).operations == []


def test_container_of_another_pod_is_left_alone(admit: Callable[..., Any], pod: Callable[..., Any]) -> None:
    """A pod that nobody of ours prepared."""
    before = pod({"name": "main", "env": [{"name": "A", "valueFrom": {"fieldRef": {"fieldPath": "spec.nodeName"}}}]})
    after = copy.deepcopy(before)
    after["spec"]["ephemeralContainers"] = [{"name": "debugger"}]
    verdict = admit(after, operation="UPDATE", subresource="ephemeralcontainers", before=before)
    assert verdict.allowed
    assert verdict.operations == []
