"""Ephemeral containers of a managed pod see no GPU."""

import copy
from collections.abc import Callable
from typing import Any

import pytest

from webhook.ephemeral_containers import is_managed
from webhook.review import Pod, PodSpec

VOID = {"name": "NVIDIA_VISIBLE_DEVICES", "value": "void"}


@pytest.fixture
def debug(admit: Callable[..., Any], pod: Callable[..., Any], gpu: Callable[..., Any]) -> Callable[..., Any]:
    """Return the function that adds containers to a prepared pod, which already has one ephemeral container."""

    def add(*containers: dict[str, Any], spec: dict[str, Any] | None = None) -> Any:
        before = admit(pod(gpu())).pod
        before["spec"] |= spec or {}
        before["spec"]["ephemeralContainers"] = [{"name": "earlier"}]
        after = copy.deepcopy(before)
        after["spec"]["ephemeralContainers"] += containers
        return admit(after, operation="UPDATE", subresource="ephemeralcontainers", before=before)

    return add


def test_added_container_sees_no_gpu(debug: Callable[..., Any]) -> None:
    """A new container gets `void`; earlier ones cannot be changed any more."""
    earlier, added = debug({"name": "debugger", "image": "busybox"}).pod["spec"]["ephemeralContainers"]
    assert added["env"] == [VOID]
    assert "env" not in earlier


def test_owned_variables_are_replaced_with_a_warning(debug: Callable[..., Any]) -> None:
    """As at creation, one entry stays, and a warning names each replaced one."""
    sent = [
        {"name": "NVIDIA_VISIBLE_DEVICES", "value": "all"},
        {"name": "MINE", "value": "1"},
        {"name": "CUDA_VISIBLE_DEVICES", "value": "0"},
    ]
    verdict = debug({"name": "debugger", "env": sent})
    assert verdict.pod["spec"]["ephemeralContainers"][1]["env"] == [VOID, {"name": "MINE", "value": "1"}]
    assert len(verdict.warnings) == 2


def test_privileged_container_is_refused(debug: Callable[..., Any]) -> None:
    """It would see every card, whatever its environment."""
    verdict = debug({"name": "debugger", "securityContext": {"privileged": True}})
    assert not verdict.allowed
    assert "container debugger is privileged" in verdict.message


def test_container_with_sys_admin_is_refused(debug: Callable[..., Any]) -> None:
    """The capability opens the cards like `privileged`."""
    verdict = debug({"name": "debugger", "securityContext": {"capabilities": {"add": ["SYS_ADMIN"]}}})
    assert not verdict.allowed
    assert "container debugger adds capability SYS_ADMIN" in verdict.message


@pytest.mark.parametrize("name", ["tranche", "tranche-claims"])
def test_pod_of_our_schedulers_is_managed(name: str) -> None:
    """Also one that is handed over to kube-scheduler."""
    assert is_managed(Pod(spec=PodSpec(scheduler_name=name)))


def test_pod_with_our_references_is_managed(debug: Callable[..., Any]) -> None:
    """A pod is managed if its environment reads our annotations."""
    verdict = debug({"name": "debugger"}, spec={"schedulerName": "default-scheduler"})
    assert verdict.pod["spec"]["ephemeralContainers"][1]["env"] == [VOID]


def test_mutation_is_idempotent(debug: Callable[..., Any]) -> None:
    """A container that already has the entry is not changed."""
    assert debug({"name": "debugger", "env": [VOID]}).operations == []


def test_unmanaged_pod_is_unchanged(admit: Callable[..., Any], pod: Callable[..., Any]) -> None:
    """A pod that admission did not prepare is not managed."""
    before = pod({"name": "main", "env": [{"name": "A", "valueFrom": {"fieldRef": {"fieldPath": "spec.nodeName"}}}]})
    after = copy.deepcopy(before)
    after["spec"]["ephemeralContainers"] = [{"name": "debugger"}]
    verdict = admit(after, operation="UPDATE", subresource="ephemeralcontainers", before=before)
    assert verdict.allowed
    assert verdict.operations == []
