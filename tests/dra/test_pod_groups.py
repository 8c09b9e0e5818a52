"""PodGroups of Kubernetes 1.37 in loop mode: pods that name one by `spec.schedulingGroup` get nodes together."""

from __future__ import annotations

import itertools
from typing import TYPE_CHECKING, Any

import pytest

from cluster.resource import KUBERNETES_POD_GROUPS
from lab import binaries, components, control_plane, manifests, wait
from lab.client import client
from tests.support import labs
from tests.support.patience import PATIENCE_S
from tests.system.conftest import Namespace, pod
from tests.system.support import coscheduling, scheduler_api
from tests.system.support import dra_driver as driver
from tests.system.support.restarts import restart

if TYPE_CHECKING:
    from collections.abc import Iterator

    from lab.layout import Layout

pytestmark = [pytest.mark.dra, pytest.mark.apiserver]
_SERIAL = itertools.count()
GATES = {"--feature-gates": "GenericWorkload=true", "--runtime-config": f"{KUBERNETES_POD_GROUPS.api_version}=true"}


@pytest.fixture(scope="module")
def layout(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Layout]:
    """A lab on Kubernetes 1.37 with PodGroups, whose scheduler reads them."""
    with labs.reserved("own_layout", tmp_path_factory) as made:
        control_plane.up(made, kube_scheduler=False, provide=binaries.provide_for_dra)
        control_plane.restart_apiserver(made, flags=GATES)
        manifests.install(made)
        client(made).apply(*coscheduling.component())
        components.up(made, real_node=False)
        restart(made, "scheduler", "--gangs-pod-groups=true")
        yield made


@pytest.fixture
def team(layout: Layout) -> Iterator[Namespace]:
    """A namespace that Tranche serves."""
    made = driver.namespace(layout, f"groups-{next(_SERIAL)}")
    yield made
    made.empty()


def group(name: str, minimum: int) -> dict[str, Any]:
    """Return a PodGroup of a gang."""
    return {
        "apiVersion": KUBERNETES_POD_GROUPS.api_version,
        "kind": KUBERNETES_POD_GROUPS.kind,
        "metadata": {"name": name},
        "spec": {"schedulingPolicy": {"gang": {"minCount": minimum}}},
    }


def member(name: str, group_name: str) -> dict[str, Any]:
    """Return a pod of a group with a whole card."""
    made = pod(name, gpu=1)
    made["spec"]["schedulingGroup"] = {"podGroupName": group_name}
    return made


def test_pods_of_a_group_get_nodes_together(team: Namespace) -> None:
    """They wait for the group, which may be created later, and then for the last of them."""
    team.create(member("m0", "train"), member("m1", "train"))
    _waits(team, "m0", "PodGroupNotFound")
    team.create(group("train", 3))
    _waits(team, "m0", "needs 3 pods, and fewer exist")
    team.create(member("m2", "train"))
    placed = team.placed(3)
    assert {each["spec"]["schedulingGroup"]["podGroupName"] for each in placed} == {"train"}
    (gang,) = scheduler_api.query(team.layout, f"/api/gangs?namespace={team.name}")["gangs"]
    assert (gang["name"], gang["size"], gang["placed"]) == ("train", 3, 3)


def test_a_smaller_number_lets_the_pods_begin(team: Namespace) -> None:
    """The field `minCount` may be changed."""
    team.create(group("train", 3), member("m0", "train"), member("m1", "train"))
    _waits(team, "m0", "needs 3 pods, and fewer exist")
    team.api.patch("podgroups.scheduling.k8s.io", "train", {"spec": group("", 2)["spec"]}, namespace=team.name)
    team.placed(2)


def _waits(team: Namespace, name: str, words: str) -> None:
    wait.until(lambda: words in team.unplaced(name), what=f"why {name} waits: {words}", timeout_s=PATIENCE_S)
