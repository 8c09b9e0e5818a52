"""GPUBindings from the label of a pod to the variables of its container, and when bindings change or vanish."""

from __future__ import annotations

import functools
import random
import threading
from typing import TYPE_CHECKING, Any

import pytest

from allocation.names import APP_NAME, CONSUME_POLICY, SHARE_MODE_PREFIX, USE_UUIDS, environment_key
from lab import fleet
from lab.client import client
from lab.processes import Daemon
from tests.support import volumes
from tests.support.depth import repetitions
from tests.system.conftest import Namespace, pod
from tests.system.support import audit, gpubindings, rights
from tests.system.support.gpubindings import APP, NODE_A, NODE_B, app_pod, binding, cards, failure, placed

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping

    from lab.layout import Layout

pytestmark = pytest.mark.apiserver

A = [fleet.card(NODE_A, index) for index in range(8)]
B = [fleet.card(NODE_B, index) for index in range(8)]
LIMIT = environment_key("cuda-device-memory-limit-0", "main")


@pytest.fixture(scope="module", params=["labelled", "required"])
def mode(tranche: Layout, request: pytest.FixtureRequest) -> Iterator[str]:
    """A mode in which bindings count, with two more nodes."""
    with gpubindings.nodes(tranche), gpubindings.applied(tranche, request.param):
        yield request.param


labelled = pytest.mark.parametrize("mode", ["labelled"], indirect=True)


@pytest.fixture
def bind(mode: str, tranche: Layout) -> Iterator[Callable[..., None]]:
    """Create or replace a binding of a card for a user's app; all are deleted after the test."""

    def bind(name: str, uuid: str, owner: str, **spec: Any) -> None:
        client(tranche).apply(binding(name, uuid, APP, owner=owner, **spec))

    yield bind
    client(tranche).delete_all("gpubindings")


@pytest.fixture
def share(tranche: Layout) -> Iterator[Callable[[str, int], None]]:
    """Set how pods share a card, by the number of the mode."""
    written: list[tuple[str, str]] = []

    def write(node: str, key: str, value: str | None) -> None:
        client(tranche).patch("node", node, {"metadata": {"annotations": {key: value}}})

    def share(uuid: str, mode: int) -> None:
        node, key = NODE_A if uuid in A else NODE_B, f"{SHARE_MODE_PREFIX}{uuid}"
        written.append((node, key))
        write(node, key, str(mode))

    yield share
    for node, key in written:
        write(node, key, None)


def unbind(layout: Layout, *names: str) -> None:
    """Delete bindings."""
    for name in names:
        client(layout).delete("gpubinding", name, wait=False)


def single(made: dict[str, Any]) -> dict[str, Any]:
    """Return a pod that consumes as many of its bound cards as it requests."""
    made["metadata"]["labels"][CONSUME_POLICY] = "single"
    return made


# ---- whose card it is ------------------------------------------------------------------------------------------------


def test_users_of_one_app_get_their_own_card_in_every_order(mode: str, namespace: Namespace) -> None:
    """25 orders of two bindings and two pods in each mode; a pod that is there first waits for its binding."""
    order = random.Random(mode)  # noqa: S311 -- orders, no secrets
    owner_of = {"alice": A[3], "bob": A[5]}
    for _ in range(25):
        objects = [binding(owner, uuid, APP, owner=owner) for owner, uuid in owner_of.items()]
        objects += [app_pod(owner, owner) for owner in owner_of]
        order.shuffle(objects)
        namespace.create(*objects)
        found = {each["metadata"]["name"]: cards(each) for each in namespace.placed(2)}
        assert found == {owner: [uuid] for owner, uuid in owner_of.items()}
        namespace.delete("pods", *owner_of)
        unbind(namespace.layout, *owner_of)


def test_without_a_binding_a_pod_waits_until_it_exists_again(bind: Callable[..., None], namespace: Namespace) -> None:
    """Bob's card is free, and is not hers; the pod that runs keeps its card."""
    bind("alices", A[0], "alice")
    bind("bobs", A[1], "bob")
    namespace.create(app_pod("runs", "alice"))
    assert cards(placed(namespace, "runs")) == [A[0]]
    unbind(namespace.layout, "alices")
    namespace.create(app_pod("next", "alice"))
    words = f"no card bound to app {APP} of alice"
    assert failure(namespace, "next", words) == "FilteringFailed"
    assert words in namespace.unplaced("next")
    assert cards(namespace.pod("runs")) == [A[0]]
    namespace.delete("pod", "runs")
    bind("alices", A[2], "alice")
    assert cards(placed(namespace, "next")) == [A[2]]


@labelled
def test_card_that_another_owner_gets_before_the_binding_is_not_used(
    bind: Callable[..., None], namespace: Namespace
) -> None:
    """The pod's node is chosen, and its Binding waits for a volume, when another owner gets its card at once."""
    bind("card", A[0], "alice")
    made = app_pod("asks", "alice")
    made["spec"]["volumes"] = [{"name": "data", "persistentVolumeClaim": {"claimName": "data"}}]
    with Daemon(namespace.layout, "local-provisioner").paused():
        namespace.create(volumes.claim("data"), made)

        def is_chosen(claims: Mapping[str, Any]) -> bool:
            annotations = claims.get("data", {}).get("metadata", {}).get("annotations", {})
            return annotations.get("volume.kubernetes.io/selected-node") == NODE_A

        namespace.until(is_chosen, "pvc", what="a node for the volume")
        unbind(namespace.layout, "card")
        bind("taken", A[0], "bob")
    assert failure(namespace, "asks", "GPUBinding card") == "GpuBindingChanged"
    assert not namespace.pod("asks")["spec"].get("nodeName")
    bind("alices", A[1], "alice")
    assert cards(placed(namespace, "asks")) == [A[1]]


def test_pod_without_an_app_gets_a_card_only_where_no_label_is_required(mode: str, namespace: Namespace) -> None:
    """Mode labelled leaves such pods as they were."""
    namespace.create(pod("stranger", gpu=1, gpumem=1000))
    if mode == "labelled":
        assert len(cards(placed(namespace, "stranger"))) == 1
        return
    assert failure(namespace, "stranger", f"pod has no owner application: set label {APP_NAME}") == "FilteringFailed"
    assert not namespace.pod("stranger")["spec"].get("nodeName")


@labelled
def test_annotation_of_a_user_does_not_give_a_foreign_card(bind: Callable[..., None], namespace: Namespace) -> None:
    """Neither at creation, nor when it is added while the pod waits."""
    bind("alices", A[0], "alice")
    bind("bobs", A[1], "bob")
    sly, late = app_pod("sly", "alice"), app_pod("late", "carol")
    sly["metadata"]["annotations"] = {USE_UUIDS: A[1]}
    namespace.create(sly, late)
    assert cards(placed(namespace, "sly")) == [A[0]]
    namespace.unplaced("late")
    namespace.patch("pod", "late", {"metadata": {"annotations": {USE_UUIDS: f"{A[1]}"}}})
    bind("carols", A[2], "carol")
    assert cards(placed(namespace, "late")) == [A[2]]


# ---- how many cards --------------------------------------------------------------------------------------------------


@labelled
def test_policy_all_takes_the_cards_of_the_next_node_when_one_is_busy(
    bind: Callable[..., None], namespace: Namespace
) -> None:
    """The first node by name has a card in use by the app, so the pod has both cards of the second."""
    bind("a0", A[0], "alice")
    namespace.create(app_pod("busy", "alice"))
    assert cards(placed(namespace, "busy")) == [A[0]]
    bind("a1", A[1], "alice")
    bind("b0", B[0], "alice")
    bind("b1", B[1], "alice")
    namespace.create(app_pod("both", "alice"))
    found = placed(namespace, "both")
    assert (found["spec"]["nodeName"], sorted(cards(found))) == (NODE_B, B[:2])


@labelled
def test_policy_single_takes_the_other_card_and_then_waits(bind: Callable[..., None], namespace: Namespace) -> None:
    """A card that a pod of the app has is not shared with another pod of the app."""
    bind("a0", A[0], "alice")
    bind("a1", A[1], "alice")
    found = []
    for name in ("first", "second"):
        namespace.create(single(app_pod(name, "alice")))
        found += cards(placed(namespace, name))
    assert sorted(found) == A[:2]
    namespace.create(single(app_pod("third", "alice")))
    assert failure(namespace, "third", "0 of 2 cards bound to") == "InsufficientGPU"
    assert "InsufficientGPU" in namespace.unplaced("third")
    namespace.delete("pod", "first")
    assert cards(placed(namespace, "third")) == found[:1]


# ---- how much of a card ----------------------------------------------------------------------------------------------


@labelled
def test_share_modes_decide_what_a_pod_gets_of_its_card(
    bind: Callable[..., None], share: Callable[[str, int], None], namespace: Namespace
) -> None:
    """Memory slicing limits the memory, an exclusive card has no other users, and time slicing limits none."""
    for uuid, number in ((A[0], 1), (A[1], 0), (A[2], 2)):
        share(uuid, number)
        for owner in ("alice", "bob"):
            bind(f"{owner}-{number}", uuid, f"{owner}-{number}", memory="8Gi")
    namespace.create(*(app_pod(f"alice-{number}", f"alice-{number}") for number in range(3)))
    whole, sliced, timed = (placed(namespace, f"alice-{number}") for number in range(3))
    assert [cards(each) for each in (whole, sliced, timed)] == [[A[1]], [A[0]], [A[2]]]
    assert sliced["metadata"]["annotations"][LIMIT] == "8192m"
    assert timed["metadata"]["annotations"][LIMIT] == "0m"  # no limit
    namespace.create(*(app_pod(f"bob-{number}", f"bob-{number}") for number in range(3)))
    assert [cards(placed(namespace, f"bob-{number}")) for number in (1, 2)] == [[A[0]], [A[2]]]
    namespace.unplaced("bob-0")
    assert not namespace.pod("bob-0")["spec"].get("nodeName")


# ---- changes ---------------------------------------------------------------------------------------------------------


@labelled
def test_change_of_a_binding_counts_for_the_pod_that_waits(
    bind: Callable[..., None], share: Callable[[str, int], None], namespace: Namespace
) -> None:
    """The card and its memory are those of the binding when the pod is placed."""
    share(A[1], 1)
    bind("alices", "GPU-gone", "alice", memory="8Gi")
    namespace.create(app_pod("waits", "alice"))
    namespace.unplaced("waits")
    bind("alices", A[1], "alice", memory="4Gi")
    found = placed(namespace, "waits")
    assert (cards(found), found["metadata"]["annotations"][LIMIT]) == ([A[1]], "4096m")


@labelled
def test_no_pod_gets_a_foreign_card_when_bindings_are_deleted_meanwhile(
    mode: str, share: Callable[[str, int], None], namespace: Namespace
) -> None:
    """Pods race with bindings whose card is given to another user: each has the card of its own, or waits.

    The cards are exclusive: a pod that was placed before the change keeps its card, and the heir waits. So no card is
    with two users or with none.
    """
    chance = random.Random(22)  # noqa: S311 -- orders, no secrets
    own = {f"u{number}": uuid for number, uuid in enumerate((*A, *B))}
    for uuid in own.values():
        share(uuid, 0)
    for _ in range(repetitions(3, 10)):
        namespace.create(*(binding(owner, uuid, APP, owner=owner) for owner, uuid in own.items()))
        deleted = chance.sample(sorted(own), len(own) // 2)
        heirs = {f"heir-of-{owner}": own[owner] for owner in deleted}
        pods = [app_pod(owner, owner) for owner in chance.sample(sorted(own | heirs), len(own | heirs))]
        creation = threading.Thread(target=namespace.create, args=pods)
        creation.start()
        threading.Event().wait(chance.uniform(0, 0.1))
        for owner in deleted:
            unbind(namespace.layout, owner)
            namespace.create(binding(f"heir-of-{owner}", own[owner], APP, owner=f"heir-of-{owner}"))
        creation.join()
        namespace.until(functools.partial(are_decided, deleted), what="decisions")
        found = {each["metadata"]["name"]: each for each in namespace.pods()}
        assert set(found) == set(own | heirs)
        for owner, each in found.items():
            if each["spec"].get("nodeName"):
                assert cards(each) == [(own | heirs)[owner]]
            else:
                assert owner in (*deleted, *heirs)
        for owner in deleted:
            with_card = [name for name in (owner, f"heir-of-{owner}") if found[name]["spec"].get("nodeName")]
            assert len(with_card) == 1, "a card that became free went to no pod, or one in use to two"
        namespace.delete("pods", *own, *heirs)
        unbind(namespace.layout, *(own.keys() - deleted), *heirs)


def are_decided(deleted: list[str], pods: Mapping[str, Any]) -> bool:
    """Whether each pod whose binding stays has a node, and each that lost it, or its heir."""

    def has_node(name: str) -> bool:
        return bool(pods.get(name, {"spec": {}})["spec"].get("nodeName"))

    others = [name for name in pods if name not in deleted and not name.startswith("heir-of-")]
    return all(map(has_node, others)) and all(has_node(name) or has_node(f"heir-of-{name}") for name in deleted)


@labelled
def test_bindings_are_never_written_by_our_processes(mode: str, tranche: Layout) -> None:
    """The audit log has writes of tests alone, which name themselves even where they have the identity of a process."""
    made = [each for each in audit.attempts(tranche) if each.get("objectRef", {}).get("resource") == "gpubindings"]
    assert made
    assert not [each for each in made if not each["userAgent"].startswith(rights.TESTS)]
