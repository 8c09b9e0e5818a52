from __future__ import annotations

import threading
from typing import TYPE_CHECKING

import pytest

from lab.client import Client, client
from lab.connection import RefusedError
from lab.errors import LabError
from tests.support.patience import PATIENCE_S

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from lab.connection import Object
    from lab.layout import Layout

pytestmark = pytest.mark.apiserver
SPACE = "client"


def config_map(name: str, **data: str) -> Object:
    """Return a manifest, which its label selects."""
    return {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": name, "labels": {"of": name}}, "data": data}


@pytest.fixture(scope="module")
def admin(control_plane: Layout) -> Iterator[Client]:
    """The administrator, and a namespace of the tests."""
    admin = client(control_plane)
    admin.apply({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": SPACE}})
    yield admin
    admin.delete("namespace", SPACE, wait=False)


def test_objects_are_created_changed_and_deleted(admin: Client) -> None:
    """Each verb does what kubectl's of that name does; a field that is applied no more is removed."""
    admin.create(config_map("a", x="1"), namespace=SPACE)
    admin.apply(config_map("b", x="1", y="1"), namespace=SPACE)
    admin.apply(config_map("b", x="2"), namespace=SPACE)
    admin.patch("cm", "a", {"data": {"z": "3"}}, namespace=SPACE)
    assert admin.get("configmaps", "a", namespace=SPACE)["data"] == {"x": "1", "z": "3"}
    assert admin.get("ConfigMap", "b", namespace=SPACE)["data"] == {"x": "2"}
    assert [each["metadata"]["name"] for each in admin.list("cm", namespace=SPACE, labels="of=b")] == ["b"]
    admin.delete("cm", "a", namespace=SPACE)
    admin.delete_all("cm", namespace=SPACE, labels="of=b")
    assert admin.find("cm", "a", namespace=SPACE) is None
    assert admin.find("cm", "b", namespace=SPACE) is None


def test_a_dry_run_changes_nothing(admin: Client) -> None:
    """The response is that of a creation."""
    (made,) = admin.create(config_map("dry", x="1"), namespace=SPACE, dry_run=True)
    assert made["metadata"]["uid"]
    assert admin.find("cm", "dry", namespace=SPACE) is None


def test_a_refusal_has_status_reason_and_message(admin: Client, control_plane: Layout) -> None:
    """An impersonated user without rights is refused as that user; so is an unknown field."""
    stranger = client(control_plane, user="nobody", groups=("a", "b"))
    with pytest.raises(RefusedError, match='403 Forbidden: pods is forbidden: User "nobody" cannot list') as refused:
        stranger.list("pods", namespace=SPACE)
    assert (refused.value.status, refused.value.reason) == (403, "Forbidden")
    with pytest.raises(RefusedError, match='unknown field "typo"'):
        admin.create({**config_map("t"), "typo": 1}, namespace=SPACE)
    review = {"apiVersion": "authentication.k8s.io/v1", "kind": "SelfSubjectReview", "metadata": {}}
    (answer,) = client(control_plane, user="x", groups=("system:authenticated", "b")).create(review)
    assert answer["status"]["userInfo"]["groups"] == ["system:authenticated", "b"]


def test_a_change_ends_the_wait(admin: Client) -> None:
    """The wait sees objects that appear, change and go while it watches."""
    states: list[dict[str, str]] = []

    def is_over(objects: Mapping[str, Object]) -> bool:
        states.append({name: each["data"]["x"] for name, each in objects.items() if name == "seen"})
        if len(states) == 1:
            threading.Thread(target=change).start()
        return {"seen": "2"} in states and states[-1] == {}

    def change() -> None:
        admin.create(config_map("seen", x="1"), namespace=SPACE)
        admin.patch("cm", "seen", {"data": {"x": "2"}}, namespace=SPACE)
        admin.delete("cm", "seen", namespace=SPACE, wait=False)

    assert admin.until(is_over, "cm", what="the end", namespace=SPACE, timeout_s=PATIENCE_S)
    assert [state for state in states if state] == [{"seen": "1"}, {"seen": "2"}]


def test_a_wait_ends_at_its_deadline(admin: Client) -> None:
    """The error says what was waited for and what was there."""
    admin.apply(config_map("there", x="1"), namespace=SPACE)
    with pytest.raises(LabError, match=r"the impossible: timed out after 1 s; there were 1 cm: .*there"):
        admin.until(lambda _: False, "cm", what="the impossible", namespace=SPACE, labels="of=there", timeout_s=1)


def test_a_kind_is_found_by_each_of_its_names(admin: Client) -> None:
    """Core kinds come before those of groups with the same name; an unknown kind is an error after a while."""
    assert admin.path("events") == "/api/v1/events"
    assert admin.path("events.events.k8s.io", namespace="x") == "/apis/events.k8s.io/v1/namespaces/x/events"
    assert admin.path("Deployment.v1.apps", "d", namespace="x") == "/apis/apps/v1/namespaces/x/deployments/d"
    assert admin.path("node", "n", namespace="x", subresource="status") == "/api/v1/nodes/n/status"
    with pytest.raises(LabError, match="kind nonsense: the API server does not have it"):
        admin.path("nonsense")
