"""Bindings that give cards: only the scheduler that leads makes them, and no user changes what they wrote."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, Any

import pytest

from allocation.names import ALLOCATION, CHARGED_TO, LEADER, SYSTEM_NAMESPACE
from lab.client import client
from tests.policies.support.leader import EPOCH, FORMER, NAME, TOKEN
from tests.policies.support.pods import binding, plain, prepared
from tests.support.refusals import refusal

if TYPE_CHECKING:
    from collections.abc import Callable

    from lab.layout import Layout
    from tests.policies.support.leader import Leader

pytestmark = pytest.mark.apiserver
TEAM, OTHERS = "team", "others"


@pytest.fixture
def bind(server: Layout, leader: Leader, namespace: str) -> Callable[..., str]:
    """A function that binds a pending pod, as the scheduler or an administrator; it returns why that is refused."""
    sent = plain("target", scheduler="tranche")
    client(server).create(sent, namespace=namespace)

    def post(body: dict[str, Any], *, path: str = "pods/target/binding", by_administrator: bool = False) -> str:
        api = client(server) if by_administrator else leader.api
        return refusal(lambda: api.request("POST", f"/api/v1/namespaces/{namespace}/{path}", body=body))

    return post


def test_token_of_an_earlier_term_is_rejected(bind: Callable[..., str]) -> None:
    """The scheduler's own identity with the token of an earlier term is rejected, and the error names the leader."""
    why = bind(binding("target", {LEADER: FORMER, ALLOCATION: "{}"}))
    assert f"the scheduler with token {FORMER} does not lead any more" in why
    assert f"{TOKEN} does" in why


def test_binding_without_the_fence_label_is_rejected(bind: Callable[..., str]) -> None:
    """The fence selects Bindings by their label, so a Binding with an allocation must have it."""
    assert "gpu.scheduling/fenced" in bind(binding("target", {LEADER: TOKEN, ALLOCATION: "{}"}, fenced=False))


def test_only_the_scheduler_may_use_the_fence_label(bind: Callable[..., str]) -> None:
    """An administrator who may bind, and who knows the token, is still not the scheduler."""
    why = bind(binding("target", {LEADER: TOKEN, ALLOCATION: "{}"}), by_administrator=True)
    assert "a Binding with the label gpu.scheduling/fenced is the Tranche scheduler's alone" in why


def test_epoch_never_decreases(server: Layout, leader: Leader) -> None:
    """The schema rejects a smaller epoch, even from an administrator."""
    patch = {"spec": {"epoch": EPOCH - 1}}
    why = refusal(lambda: client(server).patch("leadership", NAME, patch, namespace=SYSTEM_NAMESPACE))
    assert "the epoch only grows" in why


# ---- who pays --------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("where", ["namespace", "plain_namespace"])
@pytest.mark.parametrize("make", [lambda: plain("p"), prepared], ids=["plain", "gpu"])
def test_user_does_not_choose_who_pays(
    server: Layout, request: pytest.FixtureRequest, where: str, make: Callable[[], dict[str, Any]]
) -> None:
    """The scheduler's annotation is refused at creation, in every namespace."""
    sent, namespace = make(), request.getfixturevalue(where)
    sent["metadata"].setdefault("annotations", {})[CHARGED_TO] = OTHERS
    why = refusal(lambda: client(server).create(sent, namespace=namespace))
    assert f"annotation {CHARGED_TO} is written by the Tranche scheduler" in why


@pytest.mark.parametrize("subresource", ["", "status", "ephemeralcontainers"])
def test_who_pays_cannot_be_changed(
    server: Layout, leader: Leader, node: str, namespace: str, subresource: str
) -> None:
    """Not even an administrator adds, changes or removes the annotation, through the pod or a subresource."""
    api = client(server)
    leader.place(namespace, prepared(), {CHARGED_TO: TEAM})
    api.create(plain("plain"), namespace=namespace)
    for name, value in (("p", OTHERS), ("p", None), ("plain", TEAM)):
        patch = {"metadata": {"annotations": {CHARGED_TO: value}}}
        why = refusal(partial(api.patch, "pods", name, patch, namespace=namespace, subresource=subresource))
        # A subresource without annotations ignores them; one with annotations is guarded.
        assert f"annotation {CHARGED_TO}" in why or (subresource and not why)
    assert api.get("pod", "p", namespace=namespace)["metadata"]["annotations"][CHARGED_TO] == TEAM
    assert CHARGED_TO not in api.get("pod", "plain", namespace=namespace)["metadata"].get("annotations", {})


@pytest.mark.parametrize("path", ["pods/target/binding", "bindings"])
def test_users_binding_charges_nobody(bind: Callable[..., str], path: str) -> None:
    """A user who may bind pods binds none with the scheduler's annotation."""
    why = bind(binding("target", {CHARGED_TO: OTHERS}, fenced=False), path=path, by_administrator=True)
    assert f"annotation {CHARGED_TO} is written by the Tranche scheduler" in why
