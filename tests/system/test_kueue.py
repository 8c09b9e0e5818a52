"""Beside Kueue: what it reads and writes, on a real API server with the real webhook, scheduler and Job controller.

Kueue itself does not run here. The tests write what it writes (docs/kueue.md): `spec.suspend` and the template's node
selector of a Job, the scheduling gate of a pod, and a flavour's labels in its node selector.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

from allocation import names
from allocation.wire import record
from lab import wait
from lab.client import client
from lab.errors import LabError
from tests.support.patience import PATIENCE_S
from tests.system.conftest import Namespace, pod
from tests.system.support import pod_templates
from tests.system.support.gpubindings import placed
from tests.system.support.pod_templates import deployment, job, job_set

if TYPE_CHECKING:
    from collections.abc import Iterator

    from lab.layout import Layout

pytestmark = pytest.mark.apiserver

COUNT, MEMORY, CORES = "nvidia.com/gpu", "nvidia.com/gpumem", "nvidia.com/gpucores"
GATE = {"name": "kueue.x-k8s.io/admission"}
GROUP = {"kueue.x-k8s.io/queue-name": "team", "kueue.x-k8s.io/pod-group-name": "pair"}
NODE, FLAVOUR = "gpu-sim-2", {"example.com/flavour": "a100"}


@pytest.fixture(scope="module")
def templates(tranche: Layout) -> Iterator[Layout]:
    """The lab with the component that completes templates."""
    with pod_templates.completed(tranche), pod_templates.job_sets(tranche):
        yield tranche


@pytest.fixture
def team(templates: Layout, namespace: Namespace) -> Iterator[Namespace]:
    """An opted-in namespace in which templates are completed; its Jobs are deleted before its pods."""
    probe = job("probe", suspend=True, gpu=1)

    def is_completed() -> bool:
        (admitted,) = namespace.api.create(probe, namespace=namespace.name, dry_run=True)
        return CORES in limits(admitted)

    wait.until(is_completed, what="templates completed", timeout_s=PATIENCE_S)
    yield namespace
    namespace.api.delete_all("jobs", namespace=namespace.name)


@pytest.fixture
def flavour(tranche: Layout) -> Iterator[dict[str, str]]:
    """The labels of a flavour, which one node has."""
    api = client(tranche)
    api.patch("node", NODE, {"metadata": {"labels": FLAVOUR}})
    yield FLAVOUR
    api.patch("node", NODE, {"metadata": {"labels": dict.fromkeys(FLAVOUR)}})


def limits(workload: dict[str, Any]) -> dict[str, str]:
    """Return the limits of the first container of a workload's template, or of a pod."""
    spec = workload["spec"].get("template", workload)["spec"]
    found: dict[str, str] = spec["containers"][0].get("resources", {}).get("limits", {})
    return found


def cards(found: dict[str, Any]) -> list[tuple[int, int]]:
    """Return MiB and compute, in thousandths of a card, of each card of a placed pod."""
    shares = record.decode(found["metadata"]["annotations"][names.ALLOCATION]).containers["main"]
    return [(each.memory_mib, each.cores) for each in shares]


def refusal(namespace: Namespace, manifest: dict[str, Any]) -> str:
    """Return why an object would be refused."""
    with pytest.raises(LabError) as caught:
        namespace.api.create(manifest, namespace=namespace.name, dry_run=True)
    return caught.value.why


def test_the_pods_of_a_job_need_what_its_completed_template_says(team: Namespace) -> None:
    """What Kueue counts is what the Job controller's pods request, and what they hold."""
    team.create(job("slices", parallelism=2, gpumem=3000))
    assert limits(team.get("job", "slices")) == {COUNT: "1", MEMORY: "3k"}
    for each in team.placed(2, labels="job-name=slices"):
        assert each["metadata"]["ownerReferences"][0]["kind"] == "Job"
        assert limits(each) == {COUNT: "1", MEMORY: "3k"}
        assert cards(each) == [(3000, 0)]
    team.create(job("whole", gpu=1))
    assert limits(team.get("job", "whole")) == {COUNT: "1", CORES: "100"}
    (whole,) = team.placed(1, labels="job-name=whole")
    assert limits(whole) == {COUNT: "1", CORES: "100"}
    assert [cores for _, cores in cards(whole)] == [1000]


def test_a_suspended_job_is_completed_before_kueue_admits_it(team: Namespace, flavour: dict[str, str]) -> None:
    """It has no pods until then; they are placed on the nodes of the flavour, and gone after a preemption."""
    made = job("queued", suspend=True)
    made["spec"]["template"]["metadata"] = {"annotations": {names.RESREQ: "cpu=1,mem=64m,gpu=2"}}
    team.create(made)
    assert limits(team.get("job", "queued")) == {COUNT: "2", CORES: "100"}
    assert not team.pods("job-name=queued")
    admitted = {"suspend": False, "template": {"spec": {"nodeSelector": flavour}}}
    team.patch("job", "queued", {"spec": admitted})
    (runs,) = team.placed(1, labels="job-name=queued")
    assert runs["spec"]["nodeName"] == NODE
    assert [cores for _, cores in cards(runs)] == [1000, 1000]
    team.patch("job", "queued", {"spec": {"suspend": True}})
    team.until(lambda pods: not pods, labels="job-name=queued", what="no pods of a suspended Job")
    assert limits(team.get("job", "queued")) == {COUNT: "2", CORES: "100"}


def test_gated_pods_wait_for_kueue_and_follow_their_flavour(namespace: Namespace, flavour: dict[str, str]) -> None:
    """A pod that comes later is placed before; without the gate a group goes where the labels of its flavour are."""
    group = [pod(name, gpu=1, gpumem=2000, labels=GROUP) for name in ("gated-a", "gated-b")]
    for each in group:
        each["metadata"]["annotations"] = {"kueue.x-k8s.io/pod-group-total-count": "2"}
        each["spec"] |= {"nodeSelector": {}, "schedulingGates": [GATE]}
    namespace.create(*group, pod("later", gpu=1, gpumem=2000))
    placed(namespace, "later")
    for each in namespace.pods("kueue.x-k8s.io/pod-group-name=pair"):
        assert each["spec"]["schedulerName"] == names.SCHEDULER_NAME
        assert not each["spec"].get("nodeName")
    for name in ("gated-a", "gated-b"):
        namespace.patch("pod", name, {"spec": {"schedulingGates": None, "nodeSelector": flavour}})
    for found in namespace.placed(2, labels="kueue.x-k8s.io/pod-group-name=pair"):
        assert found["spec"]["nodeName"] == NODE
        assert cards(found) == [(2000, 0)]


def test_every_template_of_a_job_set_and_of_a_deployment_is_completed(team: Namespace) -> None:
    """An API that Kubernetes does not have is read like its own."""
    plain = job("plain")
    made = job_set("set", plain, job("whole", gpu=1), job("slice", gpumem=3000))
    (created,) = team.api.create(made, namespace=team.name)
    parts = [each["template"] for each in created["spec"]["replicatedJobs"]]
    assert [limits(each) for each in parts[1:]] == [{COUNT: 1, CORES: "100"}, {MEMORY: 3000, COUNT: "1"}]
    assert parts[0]["spec"]["template"] == plain["spec"]["template"]
    (created,) = team.api.create(deployment("serve", gpu=2), namespace=team.name)
    assert limits(created) == {COUNT: "2", CORES: "100"}


def test_a_template_that_no_pod_can_have_is_refused_at_the_job(team: Namespace) -> None:
    """Not only in the events of the Job, and with the path in the Job; what may change is not refused."""
    why = refusal(team, job("binary", gpu=1, gpumem="10Gi"))
    assert 'spec.template: spec.containers[0].resources.limits["nvidia.com/gpumem"]' in why
    assert 'write "10240" for 10Gi' in why
    assert "spec.replicatedJobs[0].template.spec.template: spec.containers[0]" in refusal(
        team, job_set("binary", job("j", gpu=1, gpumem="10Gi"))
    )
    claimed = job("early", suspend=True)
    claimed["spec"]["template"]["metadata"] = {"annotations": {names.CLAIM: "later"}}
    team.create(claimed)
    assert not limits(team.get("job", "early"))


def test_jobs_of_other_namespaces_stay_as_they_are(templates: Layout, plain_namespace: Namespace) -> None:
    """Whatever they ask for, and whatever is wrong with it."""
    (created,) = plain_namespace.api.create(
        job("plain", suspend=True, gpu=1), namespace=plain_namespace.name, dry_run=True
    )
    assert limits(created) == {COUNT: "1"}
    plain_namespace.api.create(
        job("binary", suspend=True, gpu=1, gpumem="10Gi"), namespace=plain_namespace.name, dry_run=True
    )


def test_a_dead_webhook_refuses_no_job(team: Namespace, dead_webhook: Layout) -> None:
    """Neither one with a GPU nor one without: the templates stay as they are."""
    for made, expected in ((job("gpu", suspend=True, gpu=1), {COUNT: "1"}), (job("plain", suspend=True), {})):
        (created,) = team.api.create(made, namespace=team.name)
        assert limits(created) == expected
