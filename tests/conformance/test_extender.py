"""1.8: behind kube-scheduler."""

from typing import Any

import msgspec
import pytest

from allocation.names import HAMI_REGISTER
from scheduler import extender_api
from tests.scheduler.builders import allocated, pod, state
from tests.scheduler.extending import Bindings, bound, extending, filtered

CARDS = '[{"id":"GPU-new","count":4,"devmem":1000,"devcore":100,"type":"NVIDIA L4","health":true}]'


def whole(name: str, annotations: dict[str, str] | None = None) -> dict[str, Any]:
    """Answer a Node as an autoscaler sends it."""
    return {"metadata": {"name": name, "annotations": annotations or {}}, "spec": {"unknown": [1]}}


def among(made: Any, asks: Any, *nodes: dict[str, Any]) -> list[dict[str, Any]]:
    """Ask which of these whole nodes take a pod."""
    body = msgspec.json.encode({"pod": asks, "nodes": {"items": nodes}, "nodenames": None})
    answer = msgspec.json.decode(extender_api.encode(made.filter(extender_api.decode_args(body))))
    found: list[dict[str, Any]] = answer["nodes"]["items"]
    return found


@pytest.mark.rule("1.8.1", "1.8.2")
def test_names_in_names_out() -> None:
    """All that fit, in the order given, twice the same; the others with what could cure them."""
    made = state("n1", "n2", "n3")
    made.set_pod(allocated("old", node="n2", memory=900))
    made.set_pod(allocated("older", node="n2", memory=900, card=1))
    verbs = extending(made)
    for _ in range(2):
        answer = filtered(verbs, pod("a", memory=500), "n3", "n2", "n1", "nowhere")
        assert answer["nodenames"] == ["n3", "n1"]
        assert answer["failedNodes"] == {"n2": "2/2 CardInsufficientMemory"}
        assert answer["failedAndUnresolvableNodes"] == {"nowhere": "NodeUnregistered"}
        assert not answer.get("error")
    assert made.ledger.used[0].sum() == 1800


@pytest.mark.rule("1.8.3")
def test_other_pods_get_everything_back() -> None:
    """Else an autoscaler would never scale up for them."""
    verbs = extending(state("n1"))
    assert filtered(verbs, pod("a"), "n1", "nowhere")["nodenames"] == ["n1", "nowhere"]
    assert among(verbs, pod("a"), whole("new")) == [whole("new")]


@pytest.mark.rule("1.8.4")
def test_whole_nodes() -> None:
    """A new one by its annotation and as empty, a known one as it is; each comes back as it came."""
    made = state("n1")
    for index in range(2):
        made.set_pod(allocated(f"old-{index}", node="n1", memory=900, card=index))
    verbs = extending(made)
    new = whole("new", {HAMI_REGISTER: CARDS})
    known = whole("n1", {HAMI_REGISTER: CARDS})
    assert among(verbs, pod("a", memory=500), new, known, whole("bare")) == [new]
    assert made.ledger.nodes == ("n1",)


@pytest.mark.rule("1.8.5")
async def test_bind() -> None:
    """By name and UID; a stranger's UID binds nothing and frees nothing."""
    made, api = state("n1"), Bindings()
    asks = pod("a", memory=500)
    api.pods["a"] = asks
    verbs = extending(made, api)
    assert "another pod has the name" in await bound(verbs, asks, "n1", uid="uid-foreign")
    assert await bound(verbs, asks, "n1") == ""
    (written,) = api.written
    assert written["metadata"]["uid"] == "uid-a"
    assert "another pod has the name" in await bound(verbs, asks, "n1", uid="uid-foreign")
    assert made.ledger.used[0].sum() == 500
