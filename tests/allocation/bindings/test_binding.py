"""Which bindings are an application's (the identity tuple of docs/gpubindings.md), and how its pods share a card."""

import pytest

from allocation import names
from allocation.bindings.binding import AppIdentity, share_modes
from allocation.names import SHARE_MODE_PREFIX
from tests.allocation.support.binding import ALICE, BOB, binding

TRUTH = [
    ("", "", True, True),
    ("alice", "", True, False),
    ("alice", "ns-a", True, False),
    ("alice", "ns-b", False, False),
    ("", "ns-a", True, False),
]


@pytest.mark.parametrize(("owner", "namespace", "is_of_alice", "is_of_bob"), TRUTH)
def test_owner_and_namespace_must_match_where_the_binding_names_them(
    owner: str, namespace: str, *, is_of_alice: bool, is_of_bob: bool
) -> None:
    """The truth table: one that names neither is for every user of the application."""
    spec = binding(owner=owner, namespace=namespace).spec
    assert ALICE.has(spec) is is_of_alice
    assert BOB.has(spec) is is_of_bob


@pytest.mark.parametrize(("owner", "namespace", "is_of_alice", "is_of_bob"), TRUTH)
def test_a_binding_without_a_namespace_can_be_required_to_name_one(
    owner: str, namespace: str, *, is_of_alice: bool, is_of_bob: bool
) -> None:
    """With `require_namespace` only bindings of the pod's own namespace count."""
    spec = binding(owner=owner, namespace=namespace).spec
    assert ALICE.has(spec, require_namespace=True) is (is_of_alice and namespace == "ns-a")
    assert BOB.has(spec, require_namespace=True) is (is_of_bob and namespace == "ns-b")


def test_a_binding_without_a_card_or_of_another_app_is_anonymouss() -> None:
    """The application must be equal, and the UUID must not be empty."""
    assert not ALICE.has(binding(app="ollama").spec)
    assert not ALICE.has(binding(uuid="").spec)


def test_a_pod_without_an_owner_has_the_bindings_without_an_owner() -> None:
    """An empty owner is not every owner: the pod never gets what is alice's."""
    anonymous = AppIdentity("comfyui", "", "ns-a")
    assert anonymous.has(binding().spec)
    assert not anonymous.has(binding(owner="alice").spec)


def test_the_labels_of_a_pod_name_its_application() -> None:
    """Without the label of the application, or with an empty one, a pod belongs to none, whatever its owner."""
    both = {names.APP_NAME: "comfyui", names.APP_OWNER: "alice"}
    assert AppIdentity.of_labels(both, "ns-a") == ALICE
    assert AppIdentity.of_labels({names.APP_NAME: "comfyui"}, "ns-a") == AppIdentity("comfyui", "", "ns-a")
    assert AppIdentity.of_labels({names.APP_OWNER: "alice"}, "ns-a") is None
    assert AppIdentity.of_labels({**both, names.APP_NAME: ""}, "ns-a") is None


def test_messages_name_the_owner_if_there_is_one() -> None:
    """As users read it in events and explanations."""
    assert str(ALICE) == "app comfyui of alice"
    assert str(AppIdentity("comfyui", "", "ns-a")) == "app comfyui"


def test_each_card_has_the_mode_that_its_annotation_names() -> None:
    """0 is exclusive, 1 memory slicing, 2 and anything that is not known time slicing; other annotations are not."""
    values = {"GPU-0": "0", "GPU-1": "1", "GPU-2": "2", "GPU-3": "", "GPU-4": "9", "GPU-5": "exclusive"}
    annotations = {f"{SHARE_MODE_PREFIX}{uuid}": value for uuid, value in values.items()}
    assert share_modes({**annotations, "other/GPU-6": "0"}) == {
        "GPU-0": "exclusive",
        "GPU-1": "memory-slicing",
        "GPU-2": "time-slicing",
        "GPU-3": "time-slicing",
        "GPU-4": "time-slicing",
        "GPU-5": "time-slicing",
    }


def test_a_node_without_such_annotations_has_no_modes() -> None:
    """Its cards are time-sliced: `scheduler.bindings.app_bindings` says so."""
    assert share_modes({}) == {}
