"""The fence: the API server itself rejects the Bindings of a scheduler that does not lead."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import pytest

from lab import kubeconfig, kubectl, wait
from lab.client import client
from lab.errors import LabError
from tests.system.conftest import PATIENCE_S, Namespace, pod

if TYPE_CHECKING:
    from pathlib import Path

    from lab.layout import Layout

pytestmark = [pytest.mark.apiserver, pytest.mark.timeout(180)]
TOKEN = "gpu.scheduling/leader"  # noqa: S105 -- an annotation
ALLOCATION = "gpu.scheduling/allocation"


def leadership(layout: Layout) -> tuple[int, str]:
    """Return epoch and identity of the leader."""
    spec = client(layout).get("leadership", "tranche-scheduler", namespace="tranche-system")["spec"]
    return spec["epoch"], spec["identity"]


def binding(annotations: dict[str, str], *, fenced: bool = True) -> dict[str, Any]:
    """Return a Binding of pod `target`."""
    labels = {"gpu.scheduling/fenced": "true"} if fenced else {}
    return {
        "apiVersion": "v1",
        "kind": "Binding",
        "metadata": {"name": "target", "labels": labels, "annotations": annotations},
        "target": {"apiVersion": "v1", "kind": "Node", "name": "gpu-sim-0"},
    }


def post(namespace: Namespace, body: dict[str, Any], *, identity: Path) -> str:
    """Post a Binding; return the error, empty if it is accepted."""
    path = f"/api/v1/namespaces/{namespace.name}/pods/target/binding"
    try:
        kubectl.run(namespace.layout, "create", "--raw", path, "-f", "-", stdin=json.dumps(body), kubeconfig=identity)
    except LabError as error:
        return error.why
    return ""


def bind(namespace: Namespace, body: dict[str, Any]) -> str:
    """Post a Binding as the scheduler; return the error, empty if it is accepted."""
    account = kubeconfig.service_account_kubeconfig(
        namespace.layout, namespace="tranche-system", name="tranche-scheduler"
    )
    return post(namespace, body, identity=account)


@pytest.fixture
def target(tranche: Layout, namespace: Namespace) -> Namespace:
    """A namespace with a pending pod `target`, which requests more memory than any card has."""
    namespace.create(pod("target", gpu=1, gpumem=999999))
    namespace.unplaced("target")
    return namespace


def test_token_of_an_earlier_term_is_rejected(tranche: Layout, target: Namespace) -> None:
    """The scheduler's own identity with the token of an earlier term is rejected, and the error names the leader."""
    epoch, identity = leadership(tranche)
    why = bind(target, binding({TOKEN: f"{epoch - 1}/{identity}", ALLOCATION: "{}"}))
    assert f"the scheduler with token {epoch - 1}/{identity} does not lead any more" in why
    assert f"{epoch}/{identity} does" in why


def test_binding_without_the_fence_label_is_rejected(tranche: Layout, target: Namespace) -> None:
    """The fence selects Bindings by their label, so a Binding with an allocation must have it."""
    epoch, identity = leadership(tranche)
    why = bind(target, binding({TOKEN: f"{epoch}/{identity}", ALLOCATION: "{}"}, fenced=False))
    assert "gpu.scheduling/fenced" in why


def test_only_the_scheduler_may_use_the_fence_label(tranche: Layout, target: Namespace) -> None:
    """An administrator who may bind, and who knows the token, is still not the scheduler."""
    epoch, identity = leadership(tranche)
    body = binding({TOKEN: f"{epoch}/{identity}", ALLOCATION: "{}"})
    why = post(target, body, identity=tranche.kubeconfig)
    assert "a Binding with the label gpu.scheduling/fenced is the Tranche scheduler's alone" in why


def test_epoch_never_decreases(tranche: Layout, target: Namespace) -> None:
    """The schema rejects a smaller epoch, even from an administrator."""
    epoch, _ = leadership(tranche)
    patch: dict[str, Any] = {"spec": {"epoch": epoch - 1}}
    with pytest.raises(LabError, match="the epoch only grows"):
        kubectl.run(
            tranche,
            *("-n", "tranche-system", "patch", "leadership", "tranche-scheduler"),
            *("--type", "merge", "-p", json.dumps(patch)),
        )


def test_deleted_leadership_is_restored(tranche: Layout, namespace: Namespace) -> None:
    """Without it no Binding of the scheduler passes, so the leader restores it. Other schedulers are not affected."""
    client(tranche).delete("leadership", "tranche-scheduler", namespace="tranche-system")
    namespace.create(pod("gpu", gpu=1, gpumem=100), pod("ordinary"))
    namespace.placed(2)
    assert leadership(tranche)[0] >= 1


def test_deleted_lease_does_not_reset_the_epoch(tranche: Layout, namespace: Namespace) -> None:
    """The epoch of the next term is greater than every earlier one."""
    epoch, _ = leadership(tranche)
    client(tranche).delete("lease", "tranche-scheduler", namespace="tranche-system")
    wait.until(lambda: leadership(tranche)[0] > epoch, what="a new term", timeout_s=PATIENCE_S)
    namespace.create(pod("gpu", gpu=1, gpumem=100))
    namespace.placed(1)
