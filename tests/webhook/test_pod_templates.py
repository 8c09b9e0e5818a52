"""Pod templates at admission: what is completed in a Job, a JobSet and a Deployment, and what is refused."""

from collections.abc import Callable
from typing import Any

import msgspec
import pytest

from allocation import names
from allocation.fairness.quota_spec import QuotaSpec
from allocation.settings import AllocationSettings
from tests.webhook.support.claims import CLAIM, CLAIMS, COUNT, MEMORY, PERCENT, Claims, container, limits
from tests.webhook.support.workloads import GROUPS, KINDS, template, workload
from tests.webhook.test_bindings import labelled, lookup, of_alice
from tests.webhook.test_queues import Cluster
from webhook.pod_templates import MAX_TEMPLATES

Make = Callable[..., Any]
CORES = "nvidia.com/gpucores"


@pytest.fixture(params=KINDS)
def kind(request: pytest.FixtureRequest) -> str:
    """A kind of workload."""
    kind: str = request.param
    return kind


@pytest.fixture
def complete(admit: Make, kind: str) -> Make:
    """Return the function that sends a workload of this kind with the templates of pods through admission."""
    return lambda *pods, **rest: admit(workload(kind, *pods), group=GROUPS[kind], kind=kind, **rest)


def test_defaults_are_written_into_the_template(complete: Make, pod: Make) -> None:
    """A count, a whole card's compute and configured memory are there before Kueue reads the template."""
    of_memory = complete(pod(container(gpumem="3k")))
    assert limits(template(of_memory.pod)) == {COUNT: "1", MEMORY: "3k"}
    assert limits(template(complete(pod(container(gpu="2"))).pod)) == {COUNT: "2", CORES: "100"}
    configured = complete(pod(container(gpu="2")), allocation=AllocationSettings(default_memory_mib=4000))
    assert limits(template(configured.pod)) == {COUNT: "2", MEMORY: "4000"}
    assert not of_memory.warnings


def test_defaults_of_the_namespace_are_written_into_the_template(complete: Make, pod: Make) -> None:
    """A GpuQuota has defaults that come before those of the configuration."""
    quotas = {"team": msgspec.convert({"single": {"defaults": {MEMORY: 2000, CORES: 20}}}, QuotaSpec)}
    verdict = complete(pod(container(gpu="1")), gpu_quotas=quotas)
    assert limits(template(verdict.pod)) == {COUNT: "1", MEMORY: "2000", CORES: "20"}


def test_a_requirement_in_one_line_becomes_resources(complete: Make, pod: Make) -> None:
    """The annotation counts nothing for Kueue; GPUs become limits, all else requests."""
    sent = pod({"name": "main"})
    sent["metadata"]["annotations"] = {names.RESREQ: "cpu=2,mem=1g,gpu=3"}
    found = template(complete(sent).pod)["spec"]["containers"][0]["resources"]
    assert found["limits"] == {COUNT: "3", CORES: "100"}
    assert found["requests"] == {"cpu": "2", "memory": str(1024**3), COUNT: "3", CORES: "100"}
    sent["metadata"]["annotations"] = {names.RESREQ: "cpu=2"}
    assert template(complete(sent).pod)["spec"]["containers"][0]["resources"] == {"requests": {"cpu": "2"}}


def test_a_queues_requirement_becomes_resources(complete: Make, pod: Make) -> None:
    """Without GPUs it stays for the pods: they are Tranche's only because they request nothing themselves."""
    sent = pod({"name": "main"})
    sent["metadata"]["labels"] = {names.QUEUE: "team-a"}
    verdict = complete(sent, memberships=Cluster(resreq="cpu=1,gpu=2"))
    assert limits(template(verdict.pod)) == {COUNT: "2", CORES: "100"}
    assert not complete(sent, memberships=Cluster(resreq="cpu=1")).operations


def test_a_claim_becomes_resources_and_a_node_selector(complete: Make, pod: Make) -> None:
    """Kueue counts the cards, and chooses a flavour whose labels do not contradict those of the claim."""
    sent = pod({"name": "main"})
    sent["metadata"]["annotations"] = {CLAIM: "four"}
    assert limits(template(complete(sent, claims=CLAIMS).pod)) == {COUNT: "4", PERCENT: "100", CORES: "100"}
    sent["metadata"]["annotations"] = {CLAIM: "pool"}
    assert template(complete(sent, claims=CLAIMS).pod)["spec"]["nodeSelector"] == {"pool": "a", "a/b": "c"}


def test_nothing_else_is_written_into_the_template(complete: Make, pod: Make) -> None:
    """Neither scheduler nor environment: an uninstalled Tranche leaves templates that any scheduler can serve."""
    sent = pod(container(gpu="1"), {"name": "side"}, terminationGracePeriodSeconds=0)
    verdict = complete(sent)
    assert [each["path"].rpartition("/resources")[2] for each in verdict.operations] == ["/limits/nvidia.com~1gpucores"]
    assert limits(template(verdict.pod)) == {COUNT: "1", CORES: "100"}


def test_a_complete_template_is_unchanged(complete: Make, pod: Make, gpu: Make) -> None:
    """Nor is one without a GPU, of another scheduler, or whose pods opt out."""
    out = pod(container(gpu="1"))
    out["metadata"]["labels"] = {names.INJECTION_LABEL: "disabled"}
    for sent in (pod(gpu()), pod({"name": "main"}), pod(container(gpu="1"), schedulerName="other"), out):
        verdict = complete(sent)
        assert verdict.allowed
        assert not verdict.operations


def test_every_template_of_a_job_set_is_completed(admit: Make, pod: Make, gpu: Make) -> None:
    """Each at its place, and what is wrong with one is said of that one."""
    sent = workload("JobSet", pod(gpu()), pod(container(gpu="1")), pod(container(gpumem="5")))
    verdict = admit(sent, group=GROUPS["JobSet"], kind="JobSet")
    assert limits(template(verdict.pod, 1)) == {COUNT: "1", CORES: "100"}
    assert limits(template(verdict.pod, 2)) == {COUNT: "1", MEMORY: "5"}
    assert verdict.pod["spec"]["replicatedJobs"][0] == sent["spec"]["replicatedJobs"][0]
    sent = workload("JobSet", pod(gpu()), pod(container(gpumem="10Gi")))
    verdict = admit(sent, group=GROUPS["JobSet"], kind="JobSet")
    assert "spec.replicatedJobs[1].template.spec.template: spec.containers[0].resources.limits" in verdict.message


@pytest.mark.parametrize(
    ("broken", "code"),
    [
        (container(gpu="1", gpumem="10Gi"), 400),
        (container(gpumemory="3000"), 400),
        (container(gpu="1") | {"securityContext": {"privileged": True}}, 403),
    ],
)
def test_a_template_that_no_pod_can_have_is_refused(
    complete: Make, admit: Make, pod: Make, broken: dict[str, Any], code: int
) -> None:
    """At the workload, where its user sees it, with the words that its pods would be refused with."""
    verdict, of_pod = complete(pod(broken)), admit(pod(broken))
    assert not verdict.allowed
    assert (verdict.code, of_pod.code) == (code, code)
    assert verdict.message.endswith(f"spec.template: {of_pod.message}")


def test_what_the_cluster_may_allow_later_is_a_warning(complete: Make, pod: Make) -> None:
    """A claim may follow its Job, and a quota may be raised: until then the pods are refused, and the Job waits."""
    claimed = pod({"name": "main"})
    claimed["metadata"]["annotations"] = {CLAIM: "later"}
    queued = pod(container(gpu="1"))
    queued["metadata"]["labels"] = {names.QUEUE: "team-a"}
    single = {"team": msgspec.convert({"single": {"limits": {MEMORY: 10}}}, QuotaSpec)}
    for verdict, words in (
        (complete(claimed), "GpuClaim later does not exist"),
        (complete(claimed, claims=Claims({}, failure="timeout")), "GpuClaim later cannot be read: timeout"),
        (complete(queued, memberships=Cluster(namespace_labels={"team": "b"})), "does not match namespace team"),
        (
            complete(pod(container(gpu="1")), isolation="cud"),
            "label gpu.scheduling/isolation of the namespace is 'cud'",
        ),
        (complete(pod(container(gpu="1", gpumem="11")), gpu_quotas=single), "exceeding quota"),
        (complete(pod(container(gpu="9")), quotas={"q": {"limits.nvidia.com/gpu": "8"}}), "exceeding resource quota"),
    ):
        assert verdict.allowed
        assert not verdict.operations
        (warning,) = verdict.warnings
        assert f"spec.template: no pod can be created of it now: {words}" in warning or words in warning


def test_one_claim_is_read_for_a_workload(admit: Make, pod: Make) -> None:
    """A JobSet that names many claims cannot make the webhook read them all; the others are completed in its pods."""
    names_of_claims = ("four", "shared", "four")
    sent = [pod({"name": "main"}) for _ in names_of_claims]
    for each, name in zip(sent, names_of_claims, strict=True):
        each["metadata"]["annotations"] = {CLAIM: name}
    specs = {name: CLAIMS.cached("team", name) for name in names_of_claims}
    claims = Claims({}, specs)  # type: ignore[arg-type] -- none of them is None
    verdict = admit(workload("JobSet", *sent), group=GROUPS["JobSet"], kind="JobSet", claims=claims)
    assert claims.reads == [("team", "four")]
    assert limits(template(verdict.pod, 2))[COUNT] == limits(template(verdict.pod, 0))[COUNT] == "4"
    assert not limits(template(verdict.pod, 1))
    (warning,) = [each for each in verdict.warnings if "replicatedJobs[1]" in each]
    assert "GpuClaim shared is not known yet" in warning


def test_gpu_bindings_decide_for_each_pod(complete: Make, pod: Make) -> None:
    """They can change while a template exists: neither their memory nor what a whole card would be is written."""
    verdict = complete(labelled(pod(container(gpu="1"))), bindings=lookup(of_alice("a", "8Gi")))
    assert verdict.allowed
    assert not verdict.operations


@pytest.mark.parametrize("spec", [{"template": 1}, {"replicatedJobs": {}}, {"replicatedJobs": [{"template": "x"}]}, []])
def test_an_unreadable_workload_is_admitted_with_a_warning(admit: Make, spec: Any) -> None:
    """The API server judges the schema, which may be newer; of JobSets, it does so after admission."""
    allowed = [admit({"metadata": {}, "spec": spec}, group=GROUPS[kind], kind=kind) for kind in KINDS]
    assert [each.allowed for each in allowed] == [True] * len(KINDS)
    assert not any(each.operations for each in allowed)
    assert any(
        "the pod templates stay as they are: they cannot be read" in w for each in allowed for w in each.warnings
    )


def test_a_workload_with_too_many_templates_stays_as_it_is(admit: Make, pod: Make) -> None:
    """Completing them would keep all other reviews waiting."""
    for count, operations in ((MAX_TEMPLATES, MAX_TEMPLATES), (MAX_TEMPLATES + 1, 0)):
        sent = workload("JobSet", *[pod(container(gpu="1"))] * count)
        verdict = admit(sent, group=GROUPS["JobSet"], kind="JobSet")
        assert verdict.allowed
        assert len(verdict.operations) == operations
        assert bool(verdict.warnings) == (not operations)


def test_only_the_creation_of_these_kinds_is_handled(admit: Make, pod: Make) -> None:
    """Not an update, not a subresource, not a kind of another group that has the same name."""
    sent = workload("Job", pod(container(gpu="1")))
    assert admit(sent, group="batch", kind="Job").operations
    assert not admit(sent, group="batch", kind="Job", operation="UPDATE", before=sent).operations
    assert not admit(sent, group="batch", kind="Job", subresource="status").operations
    assert not admit(sent, group="batch.volcano.sh", kind="Job").operations


def test_the_users_warnings_come_with_the_workload(complete: Make, pod: Make) -> None:
    """No user ever sees the warnings for pods that a controller creates."""
    (warning,) = complete(pod(container(gpu="1") | {"env": [{"name": "CUDA_VISIBLE_DEVICES", "value": "0"}]})).warnings
    assert "spec.template: container main: CUDA_VISIBLE_DEVICES=0 was dropped" in warning


def test_a_review_is_logged_with_its_workload(admit: Make, pod: Make, caplog: pytest.LogCaptureFixture) -> None:
    """By kind and namespace; the name is not known before the API server has generated it."""
    with caplog.at_level("INFO"):
        admit(workload("Job", pod(container(gpu="1"))), group="batch", kind="Job")
    assert "review of Job team/: mutated" in caplog.messages
