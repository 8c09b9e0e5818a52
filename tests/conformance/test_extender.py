"""1.8: the extender of kube-scheduler."""

from typing import Any

import msgspec
import pytest

from allocation.names import HAMI_REGISTER
from allocation.steps import finish
from scheduler.extender import filtering, wire
from tests.scheduler.support.builders import allocated, pod, state
from tests.scheduler.support.extending import Bindings, bound, extending, filtered

CARDS = '[{"id":"GPU-new","count":4,"devmem":1000,"devcore":100,"type":"NVIDIA L4","health":true}]'


def whole(name: str, annotations: dict[str, str] | None = None) -> dict[str, Any]:
    """Return a whole Node object, as an autoscaler sends it."""
    return {"metadata": {"name": name, "annotations": annotations or {}}, "spec": {"unknown": [1]}}


def filtered_nodes(verbs: Any, pod: Any, *nodes: dict[str, Any]) -> list[dict[str, Any]]:
    """Return the whole Node objects that pass the filter for a pod."""
    body = msgspec.json.encode({"pod": pod, "nodes": {"items": nodes}, "nodenames": None})
    result = msgspec.json.decode(wire.encode(finish(filtering.filter_(verbs._state, wire.decode_args(body)))))
    items: list[dict[str, Any]] = result["nodes"]["items"]
    return items


@pytest.mark.rule("1.8.1", "1.8.2")
def test_the_filter_returns_all_fitting_nodes_by_name() -> None:
    """The result keeps the order, is repeatable, and divides other nodes into resolvable and unresolvable."""
    made = state("n1", "n2", "n3")
    made.set_pod(allocated("old", node="n2", memory=900))
    made.set_pod(allocated("older", node="n2", memory=900, card=1))
    verbs = extending(made)
    for _ in range(2):
        result = filtered(verbs, pod("a", memory=500), "n3", "n2", "n1", "nowhere")
        assert result["nodenames"] == ["n3", "n1"]
        assert result["failedNodes"] == {"n2": "2/2 CardInsufficientMemory"}
        assert result["failedAndUnresolvableNodes"] == {"nowhere": "NodeUnregistered"}
        assert not result.get("error")
    assert made.ledger.used[0].sum() == 1800


@pytest.mark.rule("1.8.3")
def test_pods_without_gpu_resources_get_all_nodes_back() -> None:
    """Otherwise an autoscaler would never scale up for them."""
    verbs = extending(state("n1"))
    assert filtered(verbs, pod("a"), "n1", "nowhere")["nodenames"] == ["n1", "nowhere"]
    assert filtered_nodes(verbs, pod("a"), whole("new")) == [whole("new")]


@pytest.mark.rule("1.8.4")
def test_whole_nodes_are_evaluated_without_side_effects() -> None:
    """A new node is evaluated by its annotation and as empty, a known one by the ledger; the result is unchanged."""
    made = state("n1")
    for index in range(2):
        made.set_pod(allocated(f"old-{index}", node="n1", memory=900, card=index))
    verbs = extending(made)
    new = whole("new", {HAMI_REGISTER: CARDS})
    known = whole("n1", {HAMI_REGISTER: CARDS})
    assert filtered_nodes(verbs, pod("a", memory=500), new, known, whole("bare")) == [new]
    assert made.ledger.nodes == ("n1",)


@pytest.mark.rule("1.8.5")
async def test_bind_identifies_the_pod_by_name_and_uid() -> None:
    """Another UID binds nothing and releases nothing."""
    made, api = state("n1"), Bindings()
    requesting = pod("a", memory=500)
    api.pods["a"] = requesting
    verbs = extending(made, api)
    assert "another pod has the name" in await bound(verbs, requesting, "n1", uid="uid-foreign")
    assert await bound(verbs, requesting, "n1") == ""
    (written,) = api.written
    assert written["metadata"]["uid"] == "uid-a"
    assert "another pod has the name" in await bound(verbs, requesting, "n1", uid="uid-foreign")
    assert made.ledger.used[0].sum() == 500
