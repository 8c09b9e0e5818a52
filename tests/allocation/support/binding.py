"""Bindings and bound cards for tests; each test states only what matters to it."""

from typing import Any

from allocation.bindings.binding import AppIdentity, Binding, BindingSpec, ShareMode
from allocation.bindings.bound_cards import BoundCard, BoundCards, ConsumePolicy
from allocation.bindings.grants import Grant
from allocation.label_selector import LabelSelector

ALICE = AppIdentity("comfyui", "alice", "ns-a")
BOB = AppIdentity("comfyui", "bob", "ns-b")
EVERY_POD = LabelSelector()
"""An empty selector selects every pod; an absent one selects none."""


def binding(
    name: str = "b", *, uuid: str = "GPU-0", app: str = "comfyui", created: str = "2026-01-01T00:00:00Z", **spec: Any
) -> Binding:
    """Return a binding that selects every pod of its application."""
    fields = {"pod_selector": EVERY_POD, **spec}
    return Binding(name, created, BindingSpec(uuid, app, **fields))


def bound_card(
    uuid: str, mode: ShareMode = "time-slicing", *, memory: int | None = None, consumers: tuple[str, ...] = ()
) -> BoundCard:
    """Return a card that is bound to an application."""
    return BoundCard(Grant(uuid, memory, f"binding-of-{uuid}"), mode, consumers)


def bound(policy: ConsumePolicy, *cards: BoundCard, identity: AppIdentity = ALICE) -> BoundCards:
    """Return the cards that are bound to the application of a pod."""
    return BoundCards(identity, policy, cards)
