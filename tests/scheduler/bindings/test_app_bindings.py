"""The bindings by application, compared with a model that reads all of them for each pod."""

import random
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from allocation.allocation import Charge
from allocation.bindings import grants
from allocation.bindings.binding import AppIdentity
from allocation.bindings.bound_cards import BoundCards, consume_policy
from allocation.inventory import Card, NodeInventory
from allocation.ledger.ledger import Ledger
from allocation.reasons import PodReason
from allocation.settings import BindingSettings, BindingsMode
from cluster.gpu_binding import GpuBinding
from scheduler.bindings.app_bindings import AppBindings
from scheduler.gpu_requirements import WaitingPodError
from scheduler.objects import Pod
from tests.scheduler.support.app_pods import app_labels, app_pod, gpu_binding
from tests.scheduler.support.builders import pod

CARDS = tuple(f"GPU-{index}" for index in range(4))


def cards() -> Ledger:
    """Return a ledger of two nodes with two cards each."""
    ledger = Ledger()
    for name, uuids in (("n0", CARDS[:2]), ("n1", CARDS[2:])):
        ledger.set_node(NodeInventory(name, tuple(Card(uuid, at, 1000, slots=9) for at, uuid in enumerate(uuids))))
    return ledger


def bindings(mode: BindingsMode = "required", *, require_namespace: bool = False) -> AppBindings:
    """Return the bindings of a cluster with these cards."""
    return AppBindings(ledger=cards(), settings=BindingSettings(mode, require_namespace))


def of_pod(made: AppBindings, asks: Pod) -> BoundCards | None:
    """Return what is bound to the application of a pod."""
    meta = asks.metadata
    given = made.granted(meta.labels, meta.namespace)
    policy = consume_policy(meta.labels, meta.annotations)
    return None if given is None else made.cards(given, policy=policy, other_than=(meta.uid,))


# ---- modes -----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("asks", [pod("plain", memory=1), app_pod("app")])
def test_mode_off_binds_no_pod(asks: Pod) -> None:
    """Whatever its labels are."""
    made = bindings("off")
    made.set(gpu_binding("b", "GPU-0"))
    assert of_pod(made, asks) is None


def test_mode_labelled_leaves_pods_without_the_label_alone() -> None:
    """And mode required lets them wait for it."""
    assert of_pod(bindings("labelled"), pod("plain", memory=1)) is None
    with pytest.raises(WaitingPodError, match="pod has no owner application: set label applications") as waits:
        of_pod(bindings("required"), pod("plain", memory=1))
    assert waits.value.reason == PodReason.NoOwnerApplication


@pytest.mark.parametrize("mode", ["labelled", "required"])
def test_a_pod_of_an_application_waits_for_a_binding(mode: BindingsMode) -> None:
    """It never gets the card of another owner, nor an unbound one."""
    made = bindings(mode)
    made.set(gpu_binding("b", "GPU-0", owner="bob"))
    with pytest.raises(WaitingPodError, match="no card bound to app comfyui of alice in namespace default") as waits:
        of_pod(made, app_pod("a", owner="alice"))
    assert waits.value.reason == PodReason.NoGpuBinding


def test_a_binding_without_a_namespace_can_be_refused() -> None:
    """`require_namespace`: the labels of a pod in another namespace give it nothing."""
    made = bindings(require_namespace=True)
    made.set(gpu_binding("b", "GPU-0", owner="alice"))
    with pytest.raises(WaitingPodError):
        of_pod(made, app_pod("a", owner="alice"))
    made.set(gpu_binding("b", "GPU-0", owner="alice", namespace="default"))
    found = of_pod(made, app_pod("a", owner="alice"))
    assert found is not None
    assert [card.uuid for card in found.cards] == ["GPU-0"]
    with pytest.raises(WaitingPodError):
        of_pod(made, app_pod("a", owner="alice", namespace="elsewhere"))


# ---- share modes -----------------------------------------------------------------------------------------------------


def test_a_card_has_the_share_mode_of_the_node_that_has_it() -> None:
    """What another node says about it does not count, nor what the node said before it was removed."""
    made = bindings()
    made.set(gpu_binding("b", "GPU-0"))
    for node, modes, expected in (
        ("n0", {}, "time-slicing"),
        ("n0", {"GPU-0": "exclusive"}, "exclusive"),
        ("n1", {"GPU-0": "memory-slicing"}, "exclusive"),
        ("n0", {}, "time-slicing"),
    ):
        made.set_share_modes(node, modes)  # type: ignore[arg-type]
        found = of_pod(made, app_pod("a"))
        assert found is not None
        assert [card.mode for card in found.cards] == [expected]


# ---- any history -----------------------------------------------------------------------------------------------------


class Model:
    """Bindings and pods after a random history, next to what the history amounts to."""

    def __init__(self, seed: int) -> None:
        self.chance = random.Random(seed)  # noqa: S311 -- repeatable
        self.ledger = cards()
        self.woken: list[set[str]] = []
        """The pods that each change of a binding may concern."""
        settings = BindingSettings("required")
        self.made = AppBindings(
            ledger=self.ledger, settings=settings, on_change=lambda uids: self.woken.append({*uids})
        )
        self.bindings: dict[str, GpuBinding] = {}
        self.pods: dict[str, Pod] = {}

    def step(self) -> None:
        """Make one random change; whatever changes the bindings wakes exactly the pods of their applications."""
        chance, before = self.chance, self.ledger.changes.state
        self.woken.clear()
        match chance.randint(0, 4):
            case 0:
                new = self.binding()
                old = self.bindings.get(new.metadata.name)
                apps = {new.spec.app_name, *([old.spec.app_name] if old is not None else [])}
                for _ in range(2):  # the second time nothing changes
                    self.made.set(new)
                    assert self.woken == ([self.of_apps(apps)] if old != new else [])
                assert (self.ledger.changes.state != before) is (old != new)
                self.bindings[new.metadata.name] = new
            case 1 if self.bindings:
                old = self.bindings.pop(chance.choice([*self.bindings]))
                for _ in range(2):
                    self.made.drop(old)
                    assert self.woken == [self.of_apps({old.spec.app_name})]
                assert self.ledger.changes.state != before
            case 2 | 3:
                one = self.pod(f"p{chance.randint(0, 7)}")
                self.made.set_pod(one)
                self.pods[one.uid] = one
            case _ if self.pods:
                uid = chance.choice([*self.pods])
                self.made.drop_pod(uid)
                self.ledger.release(uid)
                del self.pods[uid]
        for uid in self.pods:
            if self.ledger.reservation(uid) is None and chance.random() < 0.2:
                at = chance.randrange(len(CARDS))
                self.ledger.assume(uid, f"n{at // 2}", (Charge(CARDS[at], 1, 0, 1),))

    def binding(self) -> GpuBinding:
        """Return a random binding, of one of a few names."""
        chance = self.chance
        spec: dict[str, Any] = {"owner": chance.choice(("", "alice", "bob"))}
        if chance.random() < 0.3:
            spec["namespace"] = chance.choice(("default", "team"))
        if chance.random() < 0.2:
            spec["podSelector"] = chance.choice((None, {"matchLabels": {"tier": "gpu"}}))
        if chance.random() < 0.3:
            spec["memory"] = chance.choice(("24k", "0"))
        created = f"2026-01-0{chance.randint(1, 3)}T00:00:00Z"
        name, app = f"b{chance.randint(0, 5)}", chance.choice(("comfyui", "ollama"))
        return gpu_binding(name, chance.choice((*CARDS, "GPU-0[1-1]", "")), app=app, created=created, **spec)

    def pod(self, name: str) -> Pod:
        """Return a random pod, whose labels may differ from before."""
        chance = self.chance
        labels = app_labels(chance.choice(("comfyui", "ollama", "")), chance.choice(("", "alice", "bob")))
        labels |= {"tier": "gpu"} if chance.random() < 0.5 else {}
        return pod(name, memory=1, labels=labels, namespace="team" if name == "p0" else "default")

    def of_apps(self, apps: set[str]) -> set[str]:
        """Return the UIDs of all pods of these applications, whatever their owner and namespace."""
        identities = ((uid, identity_of(each)) for uid, each in self.pods.items())
        return {uid for uid, identity in identities if identity is not None and identity.app in apps}

    def check(self) -> None:
        """Compare what each pod may have with what all bindings, and all other pods, say."""
        assert len(self.made) == len(self.bindings)
        for uid, each in self.pods.items():
            identity, labels = identity_of(each), each.metadata.labels
            everything = (one.binding for one in self.bindings.values())
            granted = grants.of_pod(everything, identity, labels) if identity is not None else ()
            if not granted:
                with pytest.raises(WaitingPodError) as waits:
                    of_pod(self.made, each)
                assert (waits.value.reason == PodReason.NoOwnerApplication) == (identity is None)
                continue
            found = of_pod(self.made, each)
            assert found is not None
            assert tuple(card.grant for card in found.cards) == granted
            for card in found.cards:
                others = [one for one in self.pods.values() if one.uid != uid and identity_of(one) == identity]
                assert card.consumers == tuple(sorted(str(one) for one in others if self.uses(one, card.uuid)))

    def uses(self, one: Pod, uuid: str) -> bool:
        """Whether a pod has a card."""
        held = self.ledger.reservation(one.uid)
        return held is not None and any(charge.uuid == uuid for charge in held.charges)


def identity_of(one: Pod) -> AppIdentity | None:
    """Return the application of a pod."""
    return AppIdentity.of_labels(one.metadata.labels, one.metadata.namespace)


@settings(max_examples=60, deadline=None)
@given(st.integers(0, 2**32), st.integers(1, 60))
def test_any_history_gives_what_a_fresh_reading_gives(seed: int, steps: int) -> None:
    """Bindings and pods come, change and go in any order; consumers are counted by the whole identity."""
    model = Model(seed)
    for _ in range(steps):
        model.step()
        model.check()
