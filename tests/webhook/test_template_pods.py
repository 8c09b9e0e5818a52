"""Arbitrary pod templates: a completed template is complete, and its pods need exactly what it says."""

import json
from collections.abc import Callable
from typing import Any

import msgspec
from hypothesis import given
from hypothesis import strategies as st

from allocation import names
from allocation.fairness.quota_spec import QuotaSpec
from allocation.settings import AllocationSettings
from tests.webhook.support.claims import CLAIM, CLAIMS, MEMORY
from tests.webhook.support.pods import pods
from tests.webhook.support.workloads import GROUPS, KINDS, defaulted, made_of, template, workload
from tests.webhook.test_queues import Cluster

Make = Callable[..., Any]
CORES = "nvidia.com/gpucores"

annotations = st.sampled_from(
    [{}, {}, {CLAIM: "four"}, {CLAIM: "shared"}, {CLAIM: "pool"}, {CLAIM: "later"}]
    + [{names.RESREQ: text} for text in ("gpu=2", "cpu=2,mem=1g", "cpu=1,gpu=1", "gpu=x")]
)
labels = st.sampled_from([{}, {}, {names.QUEUE: "team-a"}, {names.INJECTION_LABEL: "disabled"}])
settings = st.sampled_from(
    [AllocationSettings(), AllocationSettings(default_memory_mib=2048, default_cores_percent=10, memory_factor=1024)]
)
defaults = st.sampled_from([{}, {MEMORY: 2000}, {CORES: 30}])


class World(msgspec.Struct, frozen=True):
    """What admission finds in a cluster."""

    allocation: AllocationSettings
    defaults: dict[str, int]
    resreq: str

    def arguments(self) -> dict[str, Any]:
        """Return the arguments of `admit`."""
        quota = msgspec.convert({"single": {"defaults": self.defaults}}, QuotaSpec)
        memberships = Cluster(resreq=self.resreq)
        return {
            "allocation": self.allocation,
            "gpu_quotas": {"team": quota},
            "memberships": memberships,
            "claims": CLAIMS,
        }


worlds = st.builds(World, settings, defaults, st.sampled_from(["", "gpu=2", "cpu=1"]))


@st.composite
def described_pods(draw: st.DrawFn) -> dict[str, Any]:
    """Generate pods with the annotations and labels that admission reads, half of them without resources."""
    pod = draw(pods())
    pod["metadata"] |= {"annotations": draw(annotations), "labels": draw(labels)}
    if draw(st.booleans()):
        for each in (*pod["spec"]["containers"], *pod["spec"].get("initContainers", ())):
            each.pop("resources", None)
    return pod


def needs(pod: dict[str, Any]) -> Any:
    """Return what a pod needs: the fields that are completed in its template."""
    spec = pod["spec"]
    containers = (*spec["containers"], *spec.get("initContainers", ()))
    return spec.get("nodeSelector"), [each.get("resources") for each in containers]


@given(kind=st.sampled_from(KINDS), pod=described_pods(), world=worlds)
def test_pods_of_a_completed_template_need_what_it_says(admit: Make, kind: str, pod: Make, world: World) -> None:
    """Admission changes nothing of what they need, and makes of them what it makes of pods of the first template."""
    sent = workload(kind, pod)  # type: ignore[arg-type]
    verdict = admit(sent, group=GROUPS[kind], kind=kind, **world.arguments())
    before = admit(made_of(template(sent)), **world.arguments())
    if not verdict.allowed or any("no pod can be created of it now" in each for each in verdict.warnings):
        assert not before.allowed
        return
    created = made_of(template(verdict.pod))
    after = admit(created, **world.arguments())
    assert after.allowed
    if verdict.operations:
        assert needs(after.pod) == needs(created)
    assert _canonical(after.pod) == _canonical(before.pod)


@given(kind=st.sampled_from(KINDS), pod=described_pods(), world=worlds)
def test_a_completed_template_is_complete(admit: Make, kind: str, pod: Make, world: World) -> None:
    """A second admission, which the API server may ask for, changes nothing."""
    once = admit(workload(kind, pod), group=GROUPS[kind], kind=kind, **world.arguments())  # type: ignore[arg-type]
    if once.allowed:
        assert not admit(once.pod, group=GROUPS[kind], kind=kind, **world.arguments()).operations


def _canonical(pod: dict[str, Any]) -> str:
    """Return a pod as the API server stores it, as text: resources that are missing are the same as empty ones."""
    pod = defaulted(pod)
    for each in (*pod["spec"]["containers"], *pod["spec"].get("initContainers", ())):
        each["resources"] = {key: value for key, value in (each.get("resources") or {}).items() if value}
    return json.dumps(pod, sort_keys=True)
