"""The API server itself refuses whoever does not lead."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import pytest

from lab import kubeconfig, kubectl, wait
from lab.errors import LabError
from tests.system.conftest import PATIENCE_S, Namespace, pod

if TYPE_CHECKING:
    from pathlib import Path

    from lab.layout import Layout

pytestmark = [pytest.mark.apiserver, pytest.mark.timeout(180)]
TOKEN = "gpu.scheduling/leader"  # noqa: S105 -- an annotation
ALLOCATION = "gpu.scheduling/allocation"


def leadership(layout: Layout) -> tuple[int, str]:
    """Answer epoch and identity of who leads."""
    spec = kubectl.get(layout, "-n", "tranche-system", "leadership", "tranche-scheduler")["spec"]
    return spec["epoch"], spec["identity"]


def binding(annotations: dict[str, str], *, fenced: bool = True) -> dict[str, Any]:
    """Answer a Binding of pod `target`."""
    labels = {"gpu.scheduling/fenced": "true"} if fenced else {}
    return {
        "apiVersion": "v1",
        "kind": "Binding",
        "metadata": {"name": "target", "labels": labels, "annotations": annotations},
        "target": {"apiVersion": "v1", "kind": "Node", "name": "gpu-sim-0"},
    }


def post(namespace: Namespace, body: dict[str, Any], *, identity: Path) -> str:
    """Post a Binding; answer why it is refused."""
    path = f"/api/v1/namespaces/{namespace.name}/pods/target/binding"
    try:
        kubectl.run(namespace.layout, "create", "--raw", path, "-f", "-", stdin=json.dumps(body), kubeconfig=identity)
    except LabError as error:
        return error.why
    return ""


def bind(namespace: Namespace, body: dict[str, Any]) -> str:
    """Post a Binding as the scheduler; answer why it is refused."""
    account = kubeconfig.service_account_kubeconfig(
        namespace.layout, namespace="tranche-system", name="tranche-scheduler"
    )
    return post(namespace, body, identity=account)


@pytest.fixture
def target(tranche: Layout, namespace: Namespace) -> Namespace:
    """A namespace with a pod called `target` that waits for a node: none has so much memory."""
    namespace.create(pod("target", gpu=1, gpumem=999999))
    namespace.unplaced("target")
    return namespace


def test_an_old_token_is_refused(tranche: Layout, target: Namespace) -> None:
    """The scheduler's own identity with the token of an earlier term: refused in words that say who leads."""
    epoch, identity = leadership(tranche)
    why = bind(target, binding({TOKEN: f"{epoch - 1}/{identity}", ALLOCATION: "{}"}))
    assert f"the scheduler with token {epoch - 1}/{identity} does not lead any more" in why
    assert f"{epoch}/{identity} does" in why


def test_a_binding_without_the_label_is_refused(tranche: Layout, target: Namespace) -> None:
    """The fence looks at Bindings by their label, so an allocation without it does not pass."""
    epoch, identity = leadership(tranche)
    why = bind(target, binding({TOKEN: f"{epoch}/{identity}", ALLOCATION: "{}"}, fenced=False))
    assert "gpu.scheduling/fenced" in why


def test_nobody_else_passes_with_the_label(tranche: Layout, target: Namespace) -> None:
    """Who may bind and knows the token, which anybody may read, still is not the scheduler."""
    epoch, identity = leadership(tranche)
    body = binding({TOKEN: f"{epoch}/{identity}", ALLOCATION: "{}"})
    why = post(target, body, identity=tranche.kubeconfig)
    assert "a Binding with the label gpu.scheduling/fenced is the Tranche scheduler's alone" in why


def test_nobody_lowers_the_epoch(tranche: Layout, target: Namespace) -> None:
    """Not even an administrator: the schema lets it only grow."""
    epoch, _ = leadership(tranche)
    patch: dict[str, Any] = {"spec": {"epoch": epoch - 1}}
    with pytest.raises(LabError, match="the epoch only grows"):
        kubectl.run(
            tranche,
            *("-n", "tranche-system", "patch", "leadership", "tranche-scheduler"),
            *("--type", "merge", "-p", json.dumps(patch)),
        )


def test_a_deleted_leadership_comes_back(tranche: Layout, namespace: Namespace) -> None:
    """Without it no Binding of ours passes; the leader puts it back and goes on. Other schedulers never notice."""
    kubectl.run(tranche, "-n", "tranche-system", "delete", "leadership", "tranche-scheduler")
    namespace.create(pod("ours", gpu=1, gpumem=100), pod("ordinary"))
    namespace.placed(2)
    assert leadership(tranche)[0] >= 1


def test_a_deleted_lease_does_not_start_the_count_anew(tranche: Layout, namespace: Namespace) -> None:
    """The next term's epoch is above every one before it."""
    epoch, _ = leadership(tranche)
    kubectl.run(tranche, "-n", "tranche-system", "delete", "lease", "tranche-scheduler")
    wait.until(lambda: leadership(tranche)[0] > epoch, what="a new term", timeout_s=PATIENCE_S)
    namespace.create(pod("ours", gpu=1, gpumem=100))
    namespace.placed(1)
