"""The scheduler's requests for nodes: the only pods that it creates and deletes in tranche-system, while it leads."""

from __future__ import annotations

import copy
from typing import TYPE_CHECKING, Any

import pytest

from allocation.names import FENCED_LABEL, LEADER, PLACEHOLDER, SYSTEM_NAMESPACE
from lab import manifests, wait
from lab.client import client
from scheduler.expansion import placeholder, template
from tests.policies.support.leader import FORMER, TOKEN
from tests.scheduler.support.builders import node, status
from tests.scheduler.support.builders import pod as waiting
from tests.support.patience import PATIENCE_S
from tests.support.refusals import refusal

if TYPE_CHECKING:
    from collections.abc import Iterator

    from lab.layout import Layout
    from tests.policies.support.leader import Leader

pytestmark = pytest.mark.apiserver
NOTHING_ELSE = "and nothing else: no node"


def request(name: str = "tranche-node-7-1", *, token: str = TOKEN, fenced: bool = True) -> dict[str, Any]:
    """Return a request for a node as the leader makes it, or with a token of another."""
    inventory = status("n1").inventory()
    (group,) = template.of_nodes([node("n1")], inventory_of=lambda _: inventory, group_labels=())
    tolerations = [{"key": "gpu", "operator": "Exists"}]
    made = placeholder.manifest(
        name, group, waiting("p", memory=1, tolerations=tolerations), amounts={"cpu": 1000}, resource="nvidia.com/gpu"
    )
    labels = {FENCED_LABEL: "true"} if fenced else {}
    made["metadata"] |= {"labels": {**made["metadata"]["labels"], **labels}, "annotations": {LEADER: token}}
    return made


@pytest.fixture(scope="module")
def expanding(server: Layout, leader: Leader) -> Iterator[Layout]:
    """The component expander, in force."""
    objects = manifests.read((manifests.ROOT / "expander" / "scheduler.yaml").read_text(encoding="utf-8"))
    client(server).apply(*objects)
    wait.until(
        lambda: (
            "does not lead any more" in _refused(leader, request(token=FORMER))
            and NOTHING_ELSE in _refused(leader, _with(request(), nodeName="n1"))
            and not _refused(leader, request())
        ),
        what="the component in force",
        timeout_s=PATIENCE_S,
    )
    leader.api.create(request(), namespace=SYSTEM_NAMESPACE)
    path = leader.api.path("pods", request()["metadata"]["name"], namespace=SYSTEM_NAMESPACE)
    wait.until(
        lambda: "by their UID" in refusal(lambda: leader.api.request("DELETE", path, body={"dryRun": ["All"]})),
        what="the policy for deletions in force",
        timeout_s=PATIENCE_S,
    )
    _delete(leader, client(server).get("pods", request()["metadata"]["name"], namespace=SYSTEM_NAMESPACE))
    yield server
    for each in reversed(objects):
        namespace = each["metadata"].get("namespace", "")
        client(server).delete(each["kind"].lower(), each["metadata"]["name"], namespace=namespace)


def _refused(leader: Leader, sent: dict[str, Any], *, namespace: str = SYSTEM_NAMESPACE) -> str:
    """Return why the scheduler may not create a pod."""
    body = {**sent, "metadata": {key: value for key, value in sent["metadata"].items() if key != "namespace"}}
    return refusal(lambda: leader.api.create(body, namespace=namespace, dry_run=True))


def _with(sent: dict[str, Any], **spec: Any) -> dict[str, Any]:
    changed = copy.deepcopy(sent)
    changed["spec"] |= spec
    return changed


def test_the_leader_asks_for_a_node_and_ends_the_request(expanding: Layout, leader: Leader) -> None:
    """Also under the security standard of the namespace; its condition is what autoscalers look for."""
    sent = request("tranche-node-7-2")
    leader.api.create(sent, namespace=SYSTEM_NAMESPACE)
    made = client(expanding).get("pods", "tranche-node-7-2", namespace=SYSTEM_NAMESPACE)
    assert not made["spec"].get("volumes")
    condition = {"type": "PodScheduled", "status": "False", "reason": "Unschedulable"}
    leader.api.patch(
        *("pods", "tranche-node-7-2", {"status": {"conditions": [condition]}}),
        namespace=SYSTEM_NAMESPACE,
        subresource="status",
        by="strategic",
    )
    assert "by their UID" in refusal(lambda: leader.api.delete("pods", "tranche-node-7-2", namespace=SYSTEM_NAMESPACE))
    _delete(leader, made)


def test_a_former_leader_asks_for_nothing(expanding: Layout, leader: Leader) -> None:
    """Nor without the label by which the fence selects the request."""
    assert f"token {FORMER} does not lead any more" in _refused(leader, request(token=FORMER))
    assert "only with the label gpu.scheduling/fenced" in _refused(leader, request(fenced=False))


def test_a_stolen_token_creates_no_pods_elsewhere_and_no_others(expanding: Layout, leader: Leader) -> None:
    """In other namespaces the role forbids it; in tranche-system only requests for nodes are accepted."""
    assert "cannot create resource" in _refused(leader, request(), namespace="default")
    other = request()
    del other["metadata"]["labels"][PLACEHOLDER]
    assert "no pods but requests for nodes" in _refused(leader, other)


@pytest.mark.parametrize(
    "spec",
    [
        {"nodeName": "n1"},
        {"schedulerName": "default-scheduler"},
        {"automountServiceAccountToken": True},
        {"volumes": [{"name": "v", "emptyDir": {}}]},
        {"initContainers": [{**request()["spec"]["containers"][0], "name": "first"}]},
    ],
    ids=lambda spec: next(iter(spec)),
)
def test_a_request_can_do_nothing(expanding: Layout, leader: Leader, spec: dict[str, Any]) -> None:
    """It could not run, and would read and reach nothing if it did."""
    assert NOTHING_ELSE in _refused(leader, _with(request(), **spec))


@pytest.mark.parametrize(
    "field",
    [{"image": "busybox"}, {"command": ["sh"]}, {"env": [{"name": "A", "value": "b"}]}],
    ids=lambda field: next(iter(field)),
)
def test_its_container_can_do_nothing(expanding: Layout, leader: Leader, field: dict[str, Any]) -> None:
    """Only the image that does nothing is accepted."""
    changed = request()
    changed["spec"]["containers"][0] |= field
    assert NOTHING_ELSE in _refused(leader, changed)


def test_other_pods_of_the_namespace_are_not_deleted(expanding: Layout, leader: Leader) -> None:
    """The role permits it, the policy does not."""
    sent = request("innocent")
    del sent["metadata"]["labels"][PLACEHOLDER], sent["metadata"]["labels"][FENCED_LABEL]
    del sent["metadata"]["annotations"]
    (made,) = client(expanding).create(sent, namespace=SYSTEM_NAMESPACE)
    try:
        assert "may delete only requests for nodes" in refusal(lambda: _delete(leader, made))
    finally:
        client(expanding).delete("pods", "innocent", namespace=SYSTEM_NAMESPACE, grace_s=0)


def _delete(leader: Leader, made: dict[str, Any]) -> None:
    body = {"apiVersion": "v1", "kind": "DeleteOptions", "preconditions": {"uid": made["metadata"]["uid"]}}
    path = leader.api.path("pods", made["metadata"]["name"], namespace=SYSTEM_NAMESPACE)
    leader.api.request("DELETE", path, body=body)
