"""A GPUBinding gives out a card: no user gets an application's cards by a label."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import pytest

from lab import fleet
from lab.client import client
from tests.system.conftest import Namespace, pod
from tests.system.support import gpubindings
from tests.system.support.gpubindings import binding, labels

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from lab.layout import Layout

pytestmark = pytest.mark.apiserver
NODE, APP = "gpu-sim-1", "comfyui"
CARD, OTHER = fleet.card(NODE, 3), fleet.card(NODE, 4)
POLICY = "tranche-gpubinding-writers"


@pytest.fixture(scope="module")
def bindings(tranche: Layout, request: pytest.FixtureRequest) -> Iterator[Layout]:
    """The lab in mode labelled; a test may have the processes run with one more flag."""
    flags = [request.param] if hasattr(request, "param") else []
    with gpubindings.applied(tranche, "labelled", *flags):
        yield tranche


@pytest.fixture
def write(bindings: Layout) -> Iterator[Callable[[dict[str, Any]], None]]:
    """Create a binding as administrator; all are deleted after the test."""
    yield lambda each: client(bindings).apply(each)
    client(bindings).delete_all("gpubindings")


@pytest.fixture
def others(make_namespace: Callable[..., Namespace]) -> Iterator[Namespace]:
    """The namespace of bob, where `namespace` is alice's."""
    made = make_namespace()
    yield made
    made.empty()


def app_pod(name: str, owner: str) -> dict[str, Any]:
    """Return a pod of a user's app with one card."""
    return pod(name, labels=labels(APP, owner), gpu=1)


def cards(pod_: dict[str, Any]) -> list[str]:
    """Return the UUIDs of a placed pod's cards."""
    containers = json.loads(pod_["metadata"]["annotations"]["gpu.scheduling/allocation"])["containers"]
    return [share["uuid"] for shares in containers.values() for share in shares]


# ---- labels ----------------------------------------------------------------------------------------------------------


def test_labels_of_another_owner_give_no_card_in_another_namespace(
    namespace: Namespace, others: Namespace, write: Callable[[dict[str, Any]], None]
) -> None:
    """A pod of bob has the labels of alice, but the binding of the card names another namespace."""
    write(binding("alices", CARD, APP, owner="alice", namespace=namespace.name))
    others.create(app_pod("forged", "alice"))
    assert f"no card bound to app {APP} of alice in namespace {others.name}" in others.unplaced("forged")
    namespace.create(app_pod("own", "alice"))
    (placed,) = namespace.placed(1)
    assert cards(placed) == [CARD]
    assert not others.pod("forged")["spec"].get("nodeName")


def test_owners_of_one_application_do_not_share_bindings(
    namespace: Namespace, write: Callable[[dict[str, Any]], None]
) -> None:
    """Bob's own installation of the app has no binding, and gets none of Alice's cards, nor any other."""
    write(binding("alices", CARD, APP, owner="alice"))
    namespace.create(app_pod("bobs", "bob"))
    assert f"no card bound to app {APP} of bob" in namespace.unplaced("bobs")


def test_annotation_that_chooses_a_foreign_card_is_overridden(
    namespace: Namespace, write: Callable[[dict[str, Any]], None]
) -> None:
    """`nvidia.com/use-gpuuuid` does not widen what the bindings give."""
    write(binding("alices", CARD, APP, owner="alice"))
    write(binding("bobs", OTHER, APP, owner="bob"))
    manifest = app_pod("bobs", "bob")
    manifest["metadata"]["annotations"] = {"nvidia.com/use-gpuuuid": CARD}
    namespace.create(manifest)
    (placed,) = namespace.placed(1)
    assert cards(placed) == [OTHER]


# ---- bindings without a namespace ------------------------------------------------------------------------------------


def test_binding_without_a_namespace_trusts_every_namespace(
    others: Namespace, write: Callable[[dict[str, Any]], None]
) -> None:
    """The limit that docs/threat-model.md names: any pod with the labels gets the card."""
    write(binding("alices", CARD, APP, owner="alice"))
    others.create(app_pod("forged", "alice"))
    (placed,) = others.placed(1)
    assert cards(placed) == [CARD]


@pytest.mark.parametrize("bindings", ["--allocation-bindings-require-namespace=true"], indirect=True)
def test_binding_without_a_namespace_gives_nothing_where_one_is_required(
    namespace: Namespace, others: Namespace, write: Callable[[dict[str, Any]], None]
) -> None:
    """With `require_namespace` only the pods of the named namespace have the card."""
    write(binding("alices", CARD, APP, owner="alice"))
    others.create(app_pod("forged", "alice"))
    assert f"no card bound to app {APP} of alice" in others.unplaced("forged")
    write(binding("alices", CARD, APP, owner="alice", namespace=namespace.name))
    namespace.create(app_pod("own", "alice"))
    (placed,) = namespace.placed(1)
    assert cards(placed) == [CARD]
    assert not others.pod("forged")["spec"].get("nodeName")
