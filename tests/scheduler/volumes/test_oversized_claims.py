"""A PersistentVolumeClaim that is expensive to keep or to compare costs nothing, and its pod says why it waits."""

from typing import Any

import msgspec
import pytest

from allocation.label_selector import MOST_EXPRESSIONS
from scheduler.volumes import pod_claims
from scheduler.volumes.objects import Claim
from tests.scheduler.support.builders import pod

ABSENT = {"operator": "DoesNotExist"}
HOSTILE = {
    "expressions": {"matchExpressions": [{"key": f"k{number}", **ABSENT} for number in range(20_000)]},
    "labels": {"matchLabels": {f"k{number}": "v" for number in range(20_000)}},
    "values": {"matchExpressions": [{"key": "k", "operator": "In", "values": [f"v{n}" for n in range(20_000)]}]},
}


def claim(*, selector: dict[str, Any] | None = None, metadata: dict[str, Any] | None = None, **spec: Any) -> Claim:
    """Return a claim that the API server admits."""
    manifest = {
        "metadata": {"name": "data", "namespace": "team-a", **(metadata or {})},
        "spec": {"accessModes": ["ReadWriteOnce"], "resources": {"requests": {"storage": "1Gi"}}, **spec},
    }
    if selector is not None:
        manifest["spec"]["selector"] = selector
    return msgspec.convert(manifest, Claim)


def problem(found: Claim) -> str:
    """Return why a pod with the claim waits."""
    volumes = [{"name": "data", "persistentVolumeClaim": {"claimName": "data"}}]
    waiting = pod("p", namespace="team-a", volumes=volumes)
    return pod_claims.read(waiting, lambda _: found, planned=lambda _: None, is_delayed=lambda _: True).problem


@pytest.mark.parametrize("selector", HOSTILE.values(), ids=HOSTILE)
def test_a_selector_beyond_a_limit_is_not_kept_and_gets_no_volume(selector: dict[str, Any]) -> None:
    """The claim would otherwise match every volume."""
    made = claim(selector=selector)
    assert len(msgspec.json.encode(made)) < 1_000
    assert f"spec.selector is larger than any selector needs to be: at most {MOST_EXPRESSIONS} labels" in problem(made)


def test_a_selector_at_the_limit_counts() -> None:
    """The limit is far above what a selector needs, and exact."""
    at = [{"key": f"k{number}", **ABSENT} for number in range(MOST_EXPRESSIONS)]
    assert problem(claim(selector={"matchExpressions": at})) == ""
    assert problem(claim(selector={"matchExpressions": [*at, {"key": "one more", **ABSENT}]}))


def test_a_bound_claim_needs_no_selector() -> None:
    """Its volume was chosen, whatever the size of the selector was."""
    metadata = {"annotations": {"pv.kubernetes.io/bind-completed": "yes"}}
    made = claim(selector=HOSTILE["labels"], metadata=metadata, volumeName="pv-1")
    assert problem(made) == ""


def test_nothing_else_of_a_claim_is_kept_without_a_bound() -> None:
    """Access modes may repeat, and neither the name of a volume nor an annotation of a name need be one."""
    owners = [{"uid": f"u{number}", "controller": number == 0} for number in range(5_000)]
    annotations = {"volume.kubernetes.io/selected-node": "n" * 200_000, "notes": "x" * 50_000}
    made = claim(
        metadata={"annotations": annotations, "ownerReferences": owners},
        accessModes=["ReadWriteOnce"] * 50_000,
        volumeName="v" * 500_000,
    )
    assert len(msgspec.json.encode(made)) < 2_000
    assert made.metadata.owner_references[0].uid == "u0"


def test_a_lost_claim_with_a_volume_of_an_endless_name_has_a_short_message() -> None:
    """The message becomes a condition and an event."""
    made = claim(volumeName="v" * 500_000)
    made.status.phase = "Lost"
    assert "bound to non-existent persistentvolume" in problem(made)
    assert len(problem(made)) < 500
