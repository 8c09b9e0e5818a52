"""What the API server lets the scheduler change of running pods with the component resize, and what of it others."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

from allocation.allocation import Allocation, CardShare
from allocation.isolation import Isolation
from allocation.names import ALLOCATION, FENCED_LABEL, LEADER, RESIZE, RESIZED
from allocation.request import PodRequest
from allocation.wire import environment
from lab import manifests, wait
from lab.client import Client, client
from tests.policies.support.leader import FORMER, TOKEN
from tests.policies.support.pods import prepared
from tests.support import identities
from tests.support.patience import PATIENCE_S
from tests.support.refusals import refusal

if TYPE_CHECKING:
    from collections.abc import Iterator

    from lab.layout import Layout
    from tests.policies.support.guards import Guarded
    from tests.policies.support.leader import Leader

pytestmark = pytest.mark.apiserver
LIMIT = "cuda-device-memory-limit.gpu.scheduling/c0"
TOLERATION = {"key": RESIZED, "operator": "Exists", "effect": "NoExecute", "tolerationSeconds": 1}


class Running:
    """A pod with cards on a node, and what becomes of changes to it."""

    def __init__(self, server: Layout, leader: Leader, namespace: str) -> None:
        self.layout, self.leader, self.namespace = server, leader, namespace
        sent = prepared()
        sent["metadata"] |= {"name": "p"}
        leader.place(namespace, sent, {LIMIT: "100m"})

    def shown(self) -> dict[str, Any]:
        """Return the pod."""
        return client(self.layout).get("pods", "p", namespace=self.namespace)

    def refusal(self, patch: dict[str, Any], *, api: Client | None = None, dry_run: bool = False) -> str:
        """Patch the pod, as the scheduler unless another user is named; return why it is refused."""
        by = api or self.leader.api
        return refusal(lambda: by.patch("pods", "p", patch, namespace=self.namespace, dry_run=dry_run))

    def change(
        self,
        annotations: dict[str, str | None] | None = None,
        *,
        token: str = TOKEN,
        label: str | None = "true",
        tolerations: list[dict[str, Any]] | None = None,
        **spec: Any,
    ) -> dict[str, Any]:
        """Return a patch as a resize makes it, with these annotations."""
        metadata = {
            "labels": {FENCED_LABEL: label},
            "annotations": {ALLOCATION: '{"v":1}', LEADER: token, **(annotations or {})},
        }
        added = self.shown()["spec"].get("tolerations", []) + (tolerations or [])
        return {"metadata": metadata, "spec": {**({"tolerations": added} if tolerations else {}), **spec}}


@pytest.fixture(scope="module")
def resizing(server: Layout, guarded: Guarded) -> Iterator[Layout]:
    """The component resize, in force."""
    objects = manifests.read((manifests.ROOT / "resize" / "scheduler.yaml").read_text(encoding="utf-8"))
    client(server).apply(*objects)
    guarded.apply_policies(component="resize")
    yield server
    guarded.apply_policies()
    for each in reversed(objects):
        client(server).delete(each["kind"].lower(), each["metadata"]["name"])


@pytest.fixture
def running(resizing: Layout, leader: Leader, node: str, namespace: str) -> Running:
    """A running pod, once the component is in force."""
    pod = Running(resizing, leader, namespace)

    def is_in_force() -> bool:
        """Whether the fence is, and the policy that lets the scheduler change the annotations of a running pod."""
        why = pod.refusal(pod.change({LIMIT: "101m"}, token=FORMER))
        return "does not lead any more" in why and pod.refusal(pod.change({LIMIT: "102m"}), dry_run=True) == ""

    wait.until(is_in_force, what="the component in force", timeout_s=PATIENCE_S)
    return pod


def test_the_leader_writes_another_size(running: Running) -> None:
    """Allocation, limits, the record of the old size and one toleration, which raises the generation."""
    before = running.shown()["metadata"]["generation"]
    patch = running.change({LIMIT: "200m", RESIZED: "{}"}, tolerations=[TOLERATION])
    assert running.refusal(patch) == ""
    shown = running.shown()
    assert shown["metadata"]["generation"] == before + 1
    assert shown["metadata"]["annotations"][LIMIT] == "200m"
    # Another size later changes the seconds of the toleration, and the end of a resize removes its record.
    others = [each for each in shown["spec"]["tolerations"] if each.get("key") != RESIZED]
    again = running.change({LIMIT: "300m"})
    again["spec"] = {"tolerations": [*others, {**TOLERATION, "tolerationSeconds": 2}]}
    assert running.refusal(again) == ""
    assert running.shown()["metadata"]["generation"] == before + 2
    assert running.refusal(running.change({RESIZED: None})) == ""


@pytest.mark.parametrize("isolation", list(Isolation))
def test_the_leader_writes_every_limit_of_an_isolation(running: Running, isolation: Isolation) -> None:
    """A limit that it could not write would refuse the whole resize."""
    share = CardShare("GPU-a", 0, 200, 100)
    limits = environment.resize_annotations(Allocation("n", {"c0": (share,)}), PodRequest((), isolation))
    assert running.refusal(running.change({**limits, ALLOCATION: '{"v":1}'}), dry_run=True) == ""


def test_a_former_leader_writes_nothing(running: Running) -> None:
    """Its token is that of an earlier term, or it leaves out the label by which the fence selects the pod."""
    why = running.refusal(running.change(token=FORMER))
    assert f"the scheduler with token {FORMER} does not lead any more" in why
    assert running.refusal(running.change(label=None))
    without = {"metadata": {"labels": {FENCED_LABEL: None}, "annotations": {"example.com/x": "1"}}}
    assert "only with the label gpu.scheduling/fenced" in running.refusal(without)


@pytest.mark.parametrize(
    ("metadata", "words"),
    [
        ({"annotations": {"nvidia-visible-devices.gpu.scheduling/c0": "all"}}, "no annotation"),
        ({"annotations": {"gpu.scheduling/charged-to": "other"}}, "no annotation"),
        ({"annotations": {"example.com/mine": "x"}}, "no annotation"),
        ({"annotations": {ALLOCATION: None}}, "has no cards"),
        ({"labels": {"app": "x"}}, "no label, owner or finalizer"),
        ({"finalizers": ["example.com/x"]}, "no label, owner or finalizer"),
        (
            {"ownerReferences": [{"apiVersion": "v1", "kind": "Node", "name": "x", "uid": "x"}]},
            "no label, owner or finalizer",
        ),
    ],
)
def test_a_stolen_token_changes_no_other_metadata(running: Running, metadata: dict[str, Any], words: str) -> None:
    """Neither which cards a container sees nor who pays, nor what other controllers go by."""
    patch = running.change()
    for field, value in metadata.items():
        patch["metadata"][field] = {**patch["metadata"].get(field, {}), **value} if isinstance(value, dict) else value
    assert words in running.refusal(patch)


def test_a_stolen_token_changes_no_other_spec(running: Running) -> None:
    """Neither an image nor another toleration, nor the time that a pod has."""
    api = running.leader.api
    image = running.change()
    image["spec"] = {"containers": [{"name": "c0", "image": "evil"}]}
    taints = running.change(tolerations=[{"operator": "Exists"}])
    for patch in (image, taints, running.change(activeDeadlineSeconds=1)):
        why = refusal(lambda patch=patch: api.patch("pods", "p", patch, namespace=running.namespace, by="strategic"))
        assert "nothing of a running pod's spec but its toleration" in why


def test_a_user_wishes_and_writes_nothing_else(running: Running) -> None:
    """The wish is the user's own annotation; what the scheduler writes no user changes, with the label or without."""
    user = identities.tenant(running.layout, running.namespace)
    assert running.refusal({"metadata": {"annotations": {RESIZE: "{}"}}}, api=user) == ""
    for api in (user, client(running.layout)):
        for key in (RESIZED, ALLOCATION, LIMIT):
            patch = {"metadata": {"labels": {FENCED_LABEL: "true"}, "annotations": {key: "x", LEADER: TOKEN}}}
            assert "it can be neither added nor changed nor removed" in running.refusal(patch, api=api)


def test_a_pod_that_waits_is_left_alone(running: Running, leader: Leader) -> None:
    """What it gets is decided by its Binding."""
    sent = prepared()
    sent["metadata"] |= {"name": "waiting"}
    client(running.layout).create(sent, namespace=running.namespace)
    why = refusal(lambda: leader.api.patch("pods", "waiting", running.change(), namespace=running.namespace))
    assert "has no cards on a node" in why


def test_without_a_leadership_kubelets_still_report(running: Running) -> None:
    """Only edits of the pod itself wait for the fence."""
    assert running.refusal(running.change()) == ""
    node = identities.kubelet(running.layout, running.shown()["spec"]["nodeName"])
    running.leader.resign()
    try:
        wait.until(
            lambda: "no params found" in running.refusal(running.change()),
            what="the fence without its parameter",
            timeout_s=PATIENCE_S,
        )
        status = {"status": {"phase": "Running", "message": "alive"}}
        node.patch("pods", "p", status, namespace=running.namespace, subresource="status", by="strategic")
    finally:
        running.leader.lead()
