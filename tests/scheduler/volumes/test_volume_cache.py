"""What is assumed for pods is exclusive, given back whole, and the same as what a restarted scheduler reads."""

import random

from hypothesis import example, given
from hypothesis import strategies as st

from allocation.steps import finish
from scheduler.cycle.result import Scheduled
from scheduler.objects import Pod
from scheduler.state.cluster_state import ClusterState
from scheduler.volumes.bindings import ClaimKey, VolumeBindings
from scheduler.volumes.objects import Claim, PersistentVolume
from tests.scheduler.support.builders import allocated, node, pod, state
from tests.scheduler.support.scheduling import forget, schedule
from tests.scheduler.support.storage import claim, csi_node, mounts, volume
from tests.scheduler.support.storage_chaos import CLASSES, NODES, NUMBERS, some_claim, some_volume, some_volumes


def filled(seed: int) -> tuple[ClusterState, random.Random, list[Claim], list[PersistentVolume]]:
    """Return a state with random storage, and its claims and PersistentVolumes."""
    chance = random.Random(seed)  # noqa: S311 -- a test
    made = state(*NODES)
    for each in CLASSES:
        made.storage.set_class(each)
    for name in NODES:
        made.storage.set_csi_node(csi_node(name, csi_example_com=chance.randint(1, 3)))
    claims = [some_claim(chance, number) for number in NUMBERS]
    volumes = [some_volume(chance, number) for number in NUMBERS]
    for wanted, found in zip(claims, volumes, strict=True):
        made.storage.set_claim(wanted)
        made.storage.set_volume(found)
    return made, chance, claims, volumes


def verdicts(made: ClusterState) -> list[object]:
    """Return what every node says to a pod for each claim, and which volumes it offers."""
    found: list[object] = []
    for number in NUMBERS:
        asking = pod(f"asks-{number}", memory=1, volumes=mounts(f"c{number}"))
        needs = made.volumes.of_pod(asking)
        found.append((needs.problem, needs.requirements.key))
        for each in map(node, NODES):
            found.append(made.volumes.rejection(needs.requirements, each, needs.unbound))
            found.append(needs.unbound.find(each) if needs.unbound is not None else None)
    return found


@given(st.integers(0, 2**32))
def test_forgetting_gives_back_what_was_assumed(seed: int) -> None:
    """After any number of pods were scheduled and forgotten, every node answers as before."""
    made, chance, _, _ = filled(seed)
    before = verdicts(made)
    pods = [pod(f"p{number}", memory=1, volumes=some_volumes(chance)) for number in range(6)]
    for each in pods:
        finish(schedule(made, each))
    chance.shuffle(pods)
    for each in pods:
        forget(made, each)
    assert verdicts(made) == before


@given(st.integers(0, 2**32))
@example(489)  # a claim with an assumed volume, used by a pod that another claim binds to another node
def test_a_volume_is_assumed_for_one_claim(seed: int) -> None:
    """And every pod that shares a claim gets the same volume for it, or the same node."""
    made, chance, _, volumes = filled(seed)
    given_to: dict[str, ClaimKey] = {}
    provisioned: dict[ClaimKey, str] = {}
    free = {each.metadata.name for each in volumes if each.spec.claim_ref is None}
    for number in range(12):
        result = finish(schedule(made, pod(f"p{number}", memory=1, volumes=some_volumes(chance))))
        if isinstance(result, Scheduled):
            for match in result.volumes.matches:
                assert given_to.setdefault(match.volume, match.claim) == match.claim
                assert match.volume in free or match.claim == ClaimKey("default", f"c{match.volume[2:]}")
            for key in result.volumes.provisioned:
                assert provisioned.setdefault(key, result.node) == result.node


def test_a_new_claim_of_the_same_name_starts_afresh() -> None:
    """What was assumed about the old one ended when the API server showed it as bound, though its pod still runs."""
    made = state("n1", "n2")
    for each in CLASSES:
        made.storage.set_class(each)
    made.storage.set_claim(claim("data", storage_class="fast"))
    result = finish(schedule(made, pod("first", memory=1, volumes=mounts("data"))))
    assert isinstance(result, Scheduled)
    made.storage.set_claim(claim("data", storage_class="fast", volume="pv"))
    made.storage.drop_claim(claim("data"))
    made.storage.set_claim(claim("data", storage_class="fast"))
    unbound = made.volumes.of_pod(pod("second", memory=1, volumes=mounts("data"))).unbound
    assert unbound is not None
    assert not unbound.selected


@given(st.integers(0, 2**32))
def test_a_restart_reads_what_was_assumed(seed: int) -> None:
    """Once the API server shows all pods and claims as bound, a new scheduler comes to the same verdicts."""
    made, chance, claims, volumes = filled(seed)
    running: list[Pod] = []
    for number in range(8):
        waiting = pod(f"p{number}", memory=1, volumes=some_volumes(chance))
        result = finish(schedule(made, waiting))
        if isinstance(result, Scheduled):
            running.append(allocated(f"p{number}", node=result.node, memory=1, volumes=_sources(waiting)))
            bind(result.volumes, claims, volumes)
    restarted = state(*NODES)
    for each in CLASSES:
        restarted.storage.set_class(each)
    for name in NODES:
        restarted.storage.set_csi_node(csi_node(name, **_limits(made, name)))
    for fresh in (made, restarted):
        show(fresh, running, claims, volumes)
    assert verdicts(restarted) == verdicts(made)


def bind(bindings: VolumeBindings, claims: list[Claim], volumes: list[PersistentVolume]) -> None:
    """Change claims and volumes as the PersistentVolume controller does it after they were assumed."""
    for match in bindings.matches:
        number = int(match.volume[2:])
        volumes[number] = bound_volume(volumes[number], match.claim)
        claims[int(match.claim.name[1:])] = claim(match.claim.name, volume=match.volume)
    for key in bindings.provisioned:
        new = volume(f"new-{key.name}", handle=key.name, claim=key.name, claim_uid=f"uid-{key.name}")
        volumes.append(new)
        claims[int(key.name[1:])] = claim(key.name, volume=new.metadata.name)


def show(made: ClusterState, pods: list[Pod], claims: list[Claim], volumes: list[PersistentVolume]) -> None:
    """Apply objects to a state, as informers do it."""
    for each in pods:
        made.set_pod(each)
    for found in volumes:
        made.storage.set_volume(found)
    for wanted in claims:
        made.storage.set_claim(wanted)


def bound_volume(found: PersistentVolume, key: ClaimKey) -> PersistentVolume:
    """Return a PersistentVolume as it is once it is bound to a claim."""
    return volume(
        found.metadata.name,
        size=str(found.spec.capacity.storage),
        storage_class=found.spec.storage_class_name,
        claim=key.name,
        claim_uid=f"uid-{key.name}",
    )


def _limits(made: ClusterState, name: str) -> dict[str, int]:
    return {driver.replace(".", "_"): count for driver, count in made.volumes.objects.csi_facts(name).limits.items()}


def _sources(waiting: Pod) -> list[dict[str, object]]:
    return [
        {"name": each.name, "persistentVolumeClaim": {"claimName": each.persistent_volume_claim.claim_name}}
        if each.persistent_volume_claim is not None
        else {"name": each.name, "gcePersistentDisk": {"pdName": "disk"}}
        for each in waiting.spec.volumes
    ]
