"""The nodes and members of each gang follow pods and claims, in whatever order these come and go."""

from collections import Counter

import msgspec
from hypothesis import given
from hypothesis import strategies as st

from scheduler.gangs.gangs import Gangs
from scheduler.objects import Pod
from scheduler.volumes.planned_pod import PlannedPod
from tests.scheduler.support.builders import pod
from tests.scheduler.support.claims import claim
from tests.scheduler.support.gangs import of_gang

CLAIMS = ("c1", "c2", "c3")
PODS = st.tuples(st.sampled_from("pqrs"), st.sampled_from(["", *CLAIMS]), st.sampled_from(["n1", "n2", ""]))
GANGS = st.tuples(st.sampled_from(CLAIMS), st.sampled_from(["g", "h", "", None]))


def naming(name: str, claim_name: str, *, namespace: str = "default") -> Pod:
    """Return a pod that names a claim."""
    annotations = {"gpu.scheduling/claim": claim_name} if claim_name else {}
    return pod(name, namespace=namespace, annotations=annotations)


@given(st.lists(PODS | GANGS, max_size=40))
def test_nodes_and_members_after_changes_are_those_of_the_pods_and_claims(changes: list[tuple[str, ...]]) -> None:
    """Pods that start, move to another claim and end; claims that come, change their gang and go."""
    made, pods, gang_of = Gangs(), dict[str, tuple[str, str]](), dict[str, str]()
    for change in changes:
        match change:
            case (name, claim_name, node):
                made.remove(f"uid-{name}")
                pods.pop(name, None)
                if node:
                    made.add(naming(name, claim_name), node)
                    pods[name] = (claim_name, node)
            case (claim_name, None):
                made.drop_claim("default", claim_name)
                gang_of.pop(claim_name, None)
            case (claim_name, gang):
                made.set_claim("default", claim_name, gang)
                gang_of[claim_name] = gang
    for claim_name in CLAIMS:
        gang = gang_of.get(claim_name, "")
        expected = Counter(node for other, node in pods.values() if gang and gang_of.get(other) == gang)
        assert made.nodes_of(naming("new", claim_name)) == expected
        together = sorted(f"uid-{other}" for other, (named, _) in pods.items() if gang and gang_of.get(named) == gang)
        assert [uid for uid in map("uid-{}".format, "pqrs") if made.has(naming("new", claim_name), uid)] == together
        for uid in together:
            assert made.members(uid) == together
    for name, (claim_name, _) in pods.items():
        if not gang_of.get(claim_name):
            assert made.members(f"uid-{name}") == []


def test_gangs_of_two_namespaces_are_different() -> None:
    """Each has the pods of its own namespace only."""
    made = Gangs()
    for namespace in ("one", "two"):
        made.set_claim(namespace, "c", "g")
    made.add(naming("p", "c", namespace="one"), "n1")
    assert made.nodes_of(naming("q", "c", namespace="one")) == {"n1": 1}
    assert made.nodes_of(naming("q", "c", namespace="two")) == {}


def test_a_pod_of_a_simulation_belongs_to_the_gang_of_its_planned_claim() -> None:
    """Unless a claim of the same name exists."""
    made, planned = Gangs(), of_gang(claim("later"), "g").spec
    made.set_claim("default", "c", "g")
    made.add(naming("p", "c"), "n1")
    simulated = PlannedPod.of(naming("q", "later"), (), {"later": planned})
    assert made.nodes_of(simulated) == {"n1": 1}
    assert made.nodes_of(msgspec.structs.replace(simulated, gpu_claims={})) == {}
    made.set_claim("default", "later", "")
    assert made.nodes_of(simulated) == {}
