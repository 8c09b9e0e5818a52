"""The explanation of a pod without a node names each claim, its state, and where its volume can be used."""

from typing import Any

import msgspec
import pytest

from allocation.settings import AllocationSettings
from scheduler.api.explanation_types import ClaimExplanation
from scheduler.api.namespaced import redaction
from scheduler.state.cluster_state import ClusterState
from scheduler.volumes.objects import Claim, PersistentVolume, VolumeNodeAffinity
from tests.scheduler.support.builders import pod, state
from tests.scheduler.support.explaining import explained
from tests.scheduler.support.storage import claim, mounts, storage_class, volume

NO_CLASS: Any = {"storage_class": "no-such"}


def site(*claims: Claim, volumes: tuple[PersistentVolume, ...] = ()) -> ClusterState:
    """Return two nodes and a class whose claims wait for their pods."""
    made = state("n1", "n2")
    made.storage.set_class(storage_class())
    for each in volumes:
        made.storage.set_volume(each)
    for each in claims:
        made.storage.set_claim(each)
    return made


@pytest.mark.parametrize(
    ("existing", "state_of_claim"),
    [
        (claim("data", volume="pv"), "bound"),
        (claim("data"), "unbound"),
        (claim("data", selected="n1"), "provisioning"),
        (claim("data", **NO_CLASS), "waiting"),
        (claim("data", volumeName="pv"), "waiting"),
        (claim("data", deleted="2026-01-01T00:00:00Z"), "deleting"),
        (claim("data", volume="pv", phase="Lost"), "lost"),
        (claim("other"), "missing"),
    ],
)
def test_every_state_of_a_claim_has_a_name(existing: Claim, state_of_claim: str) -> None:
    """Exactly for the states in which the pod waits, whatever the nodes are, the note of the pod names the claim."""
    (shown,) = explained(site(existing), pod("a", memory=1, volumes=mounts("data"))).claims
    assert (shown.name, shown.state) == ("data", state_of_claim)
    assert shown.exists is (state_of_claim != "missing")
    note = explained(site(existing), pod("a", memory=1, volumes=mounts("data"))).note
    waits = state_of_claim not in ("bound", "unbound", "provisioning")
    assert note.startswith("VolumeClaimNotReady") is waits


def test_a_claim_of_an_ephemeral_volume_belongs_to_its_pod() -> None:
    """One with the same name that another object owns is not used."""
    waiting = pod("a", memory=1, volumes=[{"name": "scratch", "ephemeral": {"volumeClaimTemplate": {}}}])
    for owner, state_of_claim in ((waiting.uid, "unbound"), ("uid-b", "foreign")):
        (shown,) = explained(site(claim("a-scratch", owner=owner)), waiting).claims
        assert (shown.name, shown.state) == ("a-scratch", state_of_claim)


def test_a_claim_of_several_volumes_is_shown_once() -> None:
    """The order is that of the volumes."""
    shown = explained(site(), pod("a", memory=1, volumes=mounts("b", "a", "b"))).claims
    assert [each.name for each in shown] == ["b", "a"]


def test_a_pod_that_fits_shows_what_its_claims_would_get() -> None:
    """The volume and the node are those of the decision; users with rights in one namespace see no free volumes."""
    bound = volume("pv-1", node="n2", claim="data", claim_uid="uid-data")
    made = site(claim("data", volume="pv-1"), claim("new"), volumes=(bound, volume("pv-2", node="n2")))
    shown = explained(made, pod("a", memory=1, volumes=mounts("data", "new")))
    assert shown.claims == (
        ClaimExplanation("data", "bound", "local", "pv-1", "kubernetes.io/hostname=n2", exists=True),
        ClaimExplanation("new", "unbound", "local", "pv-2", "n2", exists=True),
    )
    redacted = redaction.of_explanation(shown)
    assert [each.volume for each in redacted.claims] == ["pv-1", ""]


@pytest.mark.parametrize(
    ("terms", "text"),
    [
        ([[("zone", "In", ["a", "b"])]], "zone in (a,b)"),
        ([[("zone", "NotIn", ["a"]), ("ssd", "Exists", [])]], "zone notin (a) and ssd"),
        ([[("hdd", "DoesNotExist", [])], [("disks", "Gt", ["3"])]], "!hdd or disks>3"),
        (
            [[("node", "In", [str(number)])] for number in range(6)],
            "node=0 or node=1 or node=2 or node=3 or node=4 or …",
        ),
        ([[("node", "In", [str(number) for number in range(6)])]], "node in (0,1,2,3,4,…)"),
    ],
)
def test_the_nodes_of_a_volume_are_described_by_their_labels(
    terms: list[list[tuple[str, str, list[str]]]], text: str
) -> None:
    """The syntax is that of kubectl's selectors; long ones are cut."""
    content = [
        {"matchExpressions": [{"key": key, "operator": operator, "values": values} for key, operator, values in term]}
        for term in terms
    ]
    bound = volume("pv", claim="data", claim_uid="uid-data", labels={"topology.kubernetes.io/zone": "z1__z2"})
    bound.spec.node_affinity = msgspec.convert({"required": {"nodeSelectorTerms": content}}, VolumeNodeAffinity)
    (shown,) = explained(
        site(claim("data", volume="pv"), volumes=(bound,)), pod("a", memory=1, volumes=mounts("data"))
    ).claims
    assert shown.usable_on == f"topology.kubernetes.io/zone in (z1,z2) and {text}"


def test_extender_mode_shows_no_claims() -> None:
    """kube-scheduler evaluates them, and Tranche does not read them."""
    made = state("n1", has_queue=False)
    assert explained(made, pod("a", memory=1, volumes=mounts("data"))).claims == ()
    beside = state("n1", settings=AllocationSettings(resource_claims="hand-over"))
    handed_over = pod("a", memory=1, volumes=mounts("data"), schedulerName="tranche-claims")
    assert explained(beside, handed_over).claims == ()
