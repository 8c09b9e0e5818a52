"""A pod gets a node that has its volumes, and its volumes are chosen together with its cards."""

import pytest

from allocation.steps import finish
from scheduler.cycle.result import Scheduled, Unschedulable
from scheduler.objects import Pod
from scheduler.state.cluster_state import ClusterState
from scheduler.volumes.bindings import NO_BINDINGS, ClaimKey, Match, VolumeBindings
from scheduler.volumes.planned_pod import PlannedPod
from tests.scheduler.support.builders import allocated, pod, state
from tests.scheduler.support.preferring import PREFERRED, in_
from tests.scheduler.support.scheduling import cycle_of, forget, schedule
from tests.scheduler.support.storage import claim, csi_node, mounts, storage_class, volume


def decide(made: ClusterState, waiting: Pod) -> Scheduled | Unschedulable:
    """Return the result for a pod."""
    result = finish(schedule(made, waiting))
    assert result is not None
    return result


def scheduled(made: ClusterState, waiting: Pod) -> Scheduled:
    """Return the result for a pod that fits."""
    result = decide(made, waiting)
    assert isinstance(result, Scheduled), result.note
    return result


def unschedulable(made: ClusterState, waiting: Pod) -> Unschedulable:
    """Return the result for a pod that does not fit."""
    result = decide(made, waiting)
    assert isinstance(result, Unschedulable), result.node
    return result


def test_a_pod_follows_its_bound_volume() -> None:
    """Only the node of its local volume takes it; nothing has to be written."""
    made = state("n1", "n2", "n3")
    made.storage.set_volume(volume("pv", node="n2", claim="data", claim_uid="uid-data"))
    made.storage.set_claim(claim("data", volume="pv"))
    result = scheduled(made, pod("a", memory=1, volumes=mounts("data")))
    assert (result.node, result.volumes) == ("n2", NO_BINDINGS)
    assert "2 nodes not fit, 1 node fit" in result.note


def test_an_unbound_claim_is_matched_together_with_the_node() -> None:
    """The smallest volume that fits is assumed for it, so that the next pod gets another one."""
    made = state("n1", "n2")
    made.storage.set_class(storage_class())
    for name, node, size in (("large", "n1", "100Gi"), ("small", "n1", "10Gi")):
        made.storage.set_volume(volume(name, node=node, size=size))
    for name in ("a", "b", "c"):
        made.storage.set_claim(claim(name))
    first, second = (scheduled(made, pod(name, memory=1, volumes=mounts(name))) for name in ("a", "b"))
    assert (first.node, second.node) == ("n1", "n1")
    assert first.volumes == VolumeBindings((Match(ClaimKey("default", "a"), "small"),))
    assert second.volumes == VolumeBindings((Match(ClaimKey("default", "b"), "large"),))
    third = unschedulable(made, pod("c", memory=1, volumes=mounts("c")))
    assert third.reasons == {"VolumeNotAvailable"}
    assert "node(s) didn't find available persistent volumes to bind" in third.note


def test_the_volumes_are_looked_for_on_the_next_best_node() -> None:
    """Without an evaluation of every node, if the best one has no volume left."""
    made = state("n1", "n2", "n3", "n4")
    made.storage.set_class(storage_class())
    for node in ("n1", "n2", "n4"):
        made.storage.set_volume(volume(f"pv-{node}", node=node))
    for name in ("a", "b", "c"):
        made.storage.set_claim(claim(name))
    found = [scheduled(made, pod(name, memory=1, volumes=mounts(name))) for name in ("a", "b", "c")]
    assert [(each.node, each.path) for each in found] == [("n1", "cached"), ("n2", "cached"), ("n4", "cached")]
    assert "at least 0 nodes not fit, at most 4 nodes fit(n4:" in found[2].note


def test_a_preferred_node_without_the_volume_is_not_chosen() -> None:
    """Preferences order only the nodes that have a volume for each unbound claim."""
    made = state("n1", "n2")
    made.storage.set_class(storage_class())
    made.storage.set_volume(volume("pv", node="n1"))
    made.storage.set_claim(claim("a"))
    affinity = {"nodeAffinity": {PREFERRED: [in_("kubernetes.io/hostname", "n2", weight=100)]}}
    assert scheduled(made, pod("a", memory=1, volumes=mounts("a"), affinity=affinity)).node == "n1"


def test_forgetting_a_pod_gives_its_volume_back() -> None:
    """Another pod gets it then."""
    made = state("n1")
    made.storage.set_class(storage_class())
    made.storage.set_volume(volume("pv", node="n1"))
    made.storage.set_claim(claim("a"))
    made.storage.set_claim(claim("b"))
    first = pod("a", memory=1, volumes=mounts("a"))
    scheduled(made, first)
    unschedulable(made, pod("b", memory=1, volumes=mounts("b")))
    forget(made, first)
    assert scheduled(made, pod("b", memory=1, volumes=mounts("b"))).volumes.matches[0].volume == "pv"


def test_a_volume_is_provisioned_where_its_class_allows() -> None:
    """The pods that share a claim go to the node that was selected for it."""
    made = state("n1", "n2")
    zone = [{"matchLabelExpressions": [{"key": "kubernetes.io/hostname", "values": ["n2"]}]}]
    made.storage.set_class(storage_class("fast", provisioner="csi.example.com", allowedTopologies=zone))
    made.storage.set_claim(claim("data", storage_class="fast"))
    result = scheduled(made, pod("a", memory=1, volumes=mounts("data")))
    assert result.node == "n2"
    assert result.volumes == VolumeBindings(provisioned=(ClaimKey("default", "data"),))
    made.storage.set_class(storage_class("fast", provisioner="csi.example.com"))
    assert scheduled(made, pod("b", memory=1, volumes=mounts("data"))).node == "n2"


@pytest.mark.parametrize(
    ("item", "words"),
    [
        (None, 'persistentvolumeclaim "data" not found'),
        (claim("data", deleted="2026-01-01T00:00:00Z"), 'persistentvolumeclaim "data" is being deleted'),
        (claim("data", storage_class="now"), 'pod has unbound immediate PersistentVolumeClaims: "data"'),
        (
            claim("data", volume="gone", phase="Lost"),
            'persistentvolumeclaim "data" bound to non-existent persistentvolume "gone"',
        ),
    ],
)
def test_a_pod_waits_for_its_claim(item: object, words: str) -> None:
    """It is not held: a change of the claim may help."""
    made = state("n1")
    made.storage.set_class(storage_class("now", is_delayed=False))
    if item is not None:
        made.storage.set_claim(item)  # type: ignore[arg-type]
    result = unschedulable(made, pod("a", memory=1, volumes=mounts("data")))
    assert result.note == f"VolumeClaimNotReady: {words}"
    assert result.reasons == {"VolumeClaimNotReady"}
    assert not result.is_held


def test_a_node_attaches_no_more_than_its_limit() -> None:
    """Volumes of pods that are being bound count."""
    made = state("n1")
    made.storage.set_csi_node(csi_node("n1", csi_example_com=2))
    for name in ("a", "b", "c"):
        made.storage.set_volume(volume(name, handle=name, claim=name, claim_uid=f"uid-{name}"))
        made.storage.set_claim(claim(name, volume=name))
    for name in ("a", "b"):
        scheduled(made, pod(name, memory=1, volumes=mounts(name)))
    result = unschedulable(made, pod("c", memory=1, volumes=mounts("c")))
    assert result.reasons == {"VolumeLimitExceeded"}
    assert scheduled(made, pod("again", memory=1, volumes=mounts("a"))).node == "n1"


def test_a_claim_for_one_pod_is_used_by_one_pod() -> None:
    """Whatever node the other pod runs on."""
    made = state("n1", "n2")
    made.storage.set_volume(volume("pv", claim="data", claim_uid="uid-data"))
    made.storage.set_claim(claim("data", volume="pv", modes=("ReadWriteOncePod",)))
    running = allocated("a", node="n1", memory=1, volumes=mounts("data"))
    made.set_pod(running)
    assert unschedulable(made, pod("b", memory=1, volumes=mounts("data"))).reasons == {"VolumeInUse"}
    made.drop_pod(running)
    scheduled(made, pod("b", memory=1, volumes=mounts("data")))


def test_a_dry_run_knows_claims_that_do_not_exist_yet() -> None:
    """It assumes nothing."""
    made = state("n1", "n2")
    made.storage.set_class(storage_class())
    made.storage.set_volume(volume("pv", node="n2"))
    waiting = pod("web-0", memory=1, volumes=mounts("data-web-0"))
    for _ in range(2):
        result = finish(cycle_of(made).dry_run(PlannedPod.of(waiting, [claim("data-web-0")]))).result
        assert isinstance(result, Scheduled)
        assert result.node == "n2"
    assert isinstance(finish(cycle_of(made).dry_run(waiting)).result, Unschedulable)
