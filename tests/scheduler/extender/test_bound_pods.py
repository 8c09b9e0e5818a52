"""Pods of applications, as beclab's kube-scheduler sends them to its extender."""

from typing import Any

import msgspec
import pytest

from allocation.names import ALLOCATION
from allocation.steps import finish
from scheduler.extender import filtering, wire
from scheduler.objects import Pod
from scheduler.state.cluster_state import ClusterState
from tests.scheduler.support.app_pods import app_pod, gpu_binding, settings
from tests.scheduler.support.builders import pod, state
from tests.scheduler.support.extending import Bindings, bound, extending, scored

NODES = ("n1", "n2", "n3")
ALICE = gpu_binding("of-alice", "GPU-n2-1", owner="alice")


def cluster() -> ClusterState:
    """Return a cluster in which every GPU pod needs an application, and a card of n2 is alice's."""
    made = state(*NODES, settings=settings("required"))
    made.bindings.set(ALICE)
    return made


def sent(asks: Pod, *, form: str, case: str) -> bytes:
    """Return ExtenderArgs with names or whole nodes, with keys as some release of kube-scheduler writes them."""
    nodes = {"items": [{"metadata": {"name": name}} for name in NODES]}
    body: dict[str, Any] = {"pod": asks, **({"nodenames": NODES} if form == "names" else {"nodes": nodes})}
    keys = {"pod": "Pod", "nodenames": "NodeNames", "nodes": "Nodes"}
    return msgspec.json.encode({keys[key] if case == "upper" else key: value for key, value in body.items()})


def answer(made: ClusterState, body: bytes) -> dict[str, Any]:
    """Call `/filter`."""
    result: dict[str, Any] = msgspec.json.decode(wire.encode(finish(filtering.filter_(made, wire.decode_args(body)))))
    return result


@pytest.mark.parametrize("form", ["names", "nodes"])
@pytest.mark.parametrize("case", ["lower", "upper"])
def test_only_the_node_of_the_bound_card_fits(form: str, case: str) -> None:
    """In each form of the request; the others have no card of alice, and no eviction helps there."""
    response = answer(cluster(), sent(app_pod("a", owner="alice"), form=form, case=case))
    fitting = response["nodenames"] if form == "names" else [n["metadata"]["name"] for n in response["nodes"]["items"]]
    assert fitting == ["n2"]
    assert response["failedAndUnresolvableNodes"] == dict.fromkeys(
        ("n1", "n3"), "no card bound to app comfyui of alice"
    )


def test_without_a_label_no_candidate_fits() -> None:
    """Each has the reason; the same holds where no binding is for the application."""
    for asks, why in (
        (pod("a", memory=100), "NoOwnerApplication: pod has no owner application"),
        (app_pod("a", owner="bob"), "NoGpuBinding: no card bound to app comfyui of bob"),
    ):
        response = answer(cluster(), sent(asks, form="names", case="lower"))
        assert response["nodenames"] == []
        assert response["failedAndUnresolvableNodes"].keys() == set(NODES)
        assert all(text.startswith(why) for text in response["failedAndUnresolvableNodes"].values())


def test_the_first_node_by_name_is_preferred_by_a_pod_that_takes_all_cards() -> None:
    """kube-scheduler adds scores of its own, so the order must be in ours."""
    made = cluster()
    made.bindings.set(gpu_binding("more", "GPU-n3-0", owner="alice"))
    scores = scored(extending(made), app_pod("a", owner="alice"), "n3", "n2")
    assert scores["n2"] == 10
    assert scores["n3"] < 10


async def test_bind_gives_the_bound_card_only() -> None:
    """Also on a node that has others free; another node is refused."""
    api, made = Bindings(), cluster()
    asks = api.pods["a"] = app_pod("a", owner="alice")
    api.gpu_bindings["of-alice"] = ALICE
    verbs = extending(made, api)
    assert "no card bound to app comfyui of alice" in await bound(verbs, asks, "n1")
    assert await bound(verbs, asks, "n2") == ""
    (written,) = api.written
    assert "GPU-n2-1" in written["metadata"]["annotations"][ALLOCATION]
    assert [charge.uuid for each in made.ledger.reservations() for charge in each.charges] == ["GPU-n2-1"]
