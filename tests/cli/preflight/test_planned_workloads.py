"""Planned pods are evaluated by the webhook's own function and the scheduler's own list of fields."""

from typing import Any

import msgspec
import pytest

from allocation.names import ISOLATION
from allocation.settings import AllocationSettings
from cli.installation.rules import Rules
from cli.preflight.cluster_snapshot import Unread
from cluster.resource_quota import ResourceQuota
from tests.cli.preflight.snapshots import about, container, namespace, pod, report_on, workload
from tests.scheduler.support.claims import claim as gpu_claim
from webhook.settings import WebhookSettings

DEVICES = {"resourceClaims": [{"name": "gpu", "resourceClaimName": "gpu"}]}


@pytest.mark.parametrize("kind", ["Deployment", "StatefulSet", "DaemonSet", "ReplicaSet", "Job", "CronJob"])
def test_every_kind_of_template_is_evaluated(kind: str) -> None:
    """The changes are reported for every kind of controller."""
    report = report_on(workloads=[workload(kind)])
    assert report.summary.new == {"mutated": 1}
    found = about(report, "admission would change")
    assert (found.severity, found.objects) == ("changes", (f"{kind} team/web",))
    assert "schedulerName tranche, its GPU variables refer to annotations" in found.what


def test_templates_with_the_same_changes_are_one_finding() -> None:
    """A thousand Deployments do not need a thousand lines."""
    report = report_on(workloads=[workload(name=f"w{each:04}") for each in range(1000)])
    assert len(about(report, "admission would change").objects) == 1000
    assert "and 997 more" in report.text()
    assert len(report.text().splitlines()) < 20


@pytest.mark.parametrize(
    ("made", "message"),
    [
        (
            workload("Deployment", container(resources={"limits": {"nvidia.com/gpumem": "10Gi"}})),
            "spec.containers[0].resources.limits[\"nvidia.com/gpumem\"] holds '10Gi'",
        ),
        (workload("Deployment", container(securityContext={"privileged": True})), "container main is privileged"),
        (workload(nodeName="n1"), "pod has node assigned: spec.nodeName is 'n1'"),
        (workload(annotations={"nvidia.com/vgpu-mode": "fast"}), "nvidia.com/vgpu-mode"),
        (
            workload(annotations={"hami.io/vgpu-node": "n1"}),
            "user 'system:serviceaccount:kube-system:replicaset-controller' is not trusted to set it",
        ),
        (workload("Deployment", {"name": 3, **container(name="x"), "resources": {"limits": []}}), "cannot be read"),
    ],
)
def test_a_refusal_has_the_message_of_the_webhook(made: dict[str, Any], message: str) -> None:
    """The finding contains the message that the user would see."""
    report = report_on(workloads=[made])
    assert report.summary.new == {"refused": 1}
    assert message in about(report, "would be refused").what
    assert not report.is_clear


def test_a_quota_that_a_pod_exceeds_by_itself_refuses_it() -> None:
    """The webhook's check of the namespace's quotas applies."""
    quota = msgspec.convert(
        {"metadata": {"name": "q", "namespace": "team"}, "spec": {"hard": {"limits.nvidia.com/gpumem": "2k"}}},
        ResourceQuota,
    )
    report = report_on(workloads=[workload()], quotas=[quota])
    assert "exceeding resource quota" in about(report, "would be refused").what


def test_the_isolation_of_a_namespace_is_evaluated() -> None:
    """A label that names none would refuse each of its pods."""
    report = report_on(workloads=[workload()], namespaces=[namespace("team", **{ISOLATION: "cud"})])
    assert f"label {ISOLATION} of the namespace is 'cud'" in about(report, "would be refused").what


def test_an_unsupported_field_blocks_only_in_loop_mode() -> None:
    """Admission ignores resource claims; in extender mode kube-scheduler evaluates them."""
    report = report_on(workloads=[workload(**DEVICES)])
    found = about(report, "would be held")
    assert (found.severity, found.objects) == ("blocks", ("Deployment team/web",))
    assert "spec.resourceClaims" in found.what
    assert report.summary.held == 1
    assert report_on(Rules(extender=True), workloads=[workload(**DEVICES)]).is_clear
    handing_over = Rules(allocation=AllocationSettings(resource_claims="hand-over"))
    handed_over = report_on(handing_over, workloads=[workload(**DEVICES)])
    assert (handed_over.is_clear, handed_over.summary.held) == (True, 0)
    assert "schedulerName tranche-claims" in about(handed_over, "admission would change").what


def test_volumes_block_nothing() -> None:
    """Both modes evaluate them, also the claims that a StatefulSet adds to its pods."""
    made = workload("StatefulSet", volumes=[{"name": "model", "persistentVolumeClaim": {"claimName": "model"}}])
    made["spec"]["volumeClaimTemplates"] = [{"metadata": {"name": "data"}}]
    report = report_on(workloads=[made])
    assert (report.is_clear, report.summary.held) == (True, 0)


def test_a_pod_for_hamis_scheduler_needs_an_alias() -> None:
    """Its template names a scheduler that will place nothing; with the alias Tranche places it."""
    made = workload(schedulerName="hami-scheduler")
    report = report_on(workloads=[made])
    assert report.summary.new == {"left alone": 1}
    assert "webhook.aliases: [hami-scheduler]" in about(report, "Deployment team/web").next_step
    assert not report.is_clear
    report = report_on(Rules(webhook=WebhookSettings(aliases=("hami-scheduler",))), workloads=[made])
    assert report.summary.new == {"mutated": 1}


@pytest.mark.parametrize(
    ("made", "text"),
    [
        (workload(schedulerName="volcano"), "'volcano' assigns it to another scheduler"),
        (workload(labels={"gpu.scheduling/injection": "disabled"}), "its own label opts it out"),
        (workload(labels={"hami.io/webhook": "ignore"}), "its own label opts it out"),
        (workload(namespace="kube-system"), "admission is never called for namespace kube-system"),
    ],
)
def test_pods_that_admission_leaves_alone_are_reported(made: dict[str, Any], text: str) -> None:
    """They are for another scheduler, opted out, or in a system namespace."""
    report = report_on(workloads=[made])
    assert report.summary.new == {"left alone": 1}
    assert about(report, text).severity == "changes"


def test_only_the_outermost_controller_is_evaluated() -> None:
    """ReplicaSets of a Deployment and Jobs of a CronJob are skipped, and so are finished Jobs."""
    finished = {"conditions": [{"type": "Complete", "status": "True"}]}
    report = report_on(
        workloads=[
            workload("ReplicaSet", owner="Deployment"),
            workload("Job", owner="CronJob"),
            workload("Job", status=finished),
        ],
    )
    assert report.summary.new == {}


def test_a_pending_pod_must_be_created_again() -> None:
    """A pod is admitted only once; what HAMi's webhook and scheduler wrote into it is ignored."""
    written = {"hami.io/vgpu-node": "n1"}
    report = report_on(
        pods=[
            pod("bare", schedulerName="hami-scheduler", annotations=written),
            pod("owned", owner="ReplicaSet"),
            pod("of-a-custom-kind", owner="PyTorchJob", **DEVICES),
            pod("ours", schedulerName="tranche"),
            pod("out", labels={"gpu.scheduling/injection": "disabled"}),
        ]
    )
    waiting = about(report, "a pod is not admitted twice")
    assert waiting.objects == ("pod team/bare", "pod team/of-a-custom-kind", "pod team/owned")
    assert report.summary.new == {"left alone": 1, "mutated": 2}
    assert about(report, "would be held").objects == ("pod team/of-a-custom-kind",)


def test_the_warnings_of_admission_are_reported() -> None:
    """Users learn before the switch which variables the webhook would drop."""
    made = workload("Deployment", container(env=[{"name": "CUDA_VISIBLE_DEVICES", "value": "0"}]))
    assert "CUDA_VISIBLE_DEVICES=0 was dropped" in about(report_on(workloads=[made]), "admission would warn").what


CLAIMED = workload("Deployment", container(gpu=None), annotations={"gpu.scheduling/claim": "cards"})


def test_a_workload_with_a_claim_is_evaluated_by_its_claim() -> None:
    """Also if its containers request nothing: admission writes the cards and the selector of the claim."""
    claimed = gpu_claim("cards", namespace="team", labels={"rack": "1"}, count=2)
    report = report_on(workloads=[CLAIMED], gpu_claims=[claimed])
    assert report.summary.new == {"mutated": 1}
    found = about(report, "admission would change")
    assert "the nodeSelector of its GpuClaim, limits, its GPU variables" in found.what


def test_a_workload_that_contradicts_its_claim_is_refused() -> None:
    """The finding contains the message of the webhook."""
    made = workload(annotations={"gpu.scheduling/claim": "cards"})
    report = report_on(workloads=[made], gpu_claims=[gpu_claim("cards", namespace="team", count=2)])
    assert "GpuClaim cards gives 2" in about(report, "would be refused").what


def test_a_missing_claim_blocks_the_switch() -> None:
    """A claim of another namespace does not count."""
    report = report_on(workloads=[CLAIMED], gpu_claims=[gpu_claim("cards", namespace="other")])
    found = about(report, "would be refused: GpuClaim cards does not exist in namespace team")
    assert (found.severity, found.objects, report.summary.new) == ("blocks", ("Deployment team/web",), {"refused": 1})


def test_claims_that_cannot_be_read_leave_the_outcome_open() -> None:
    """Nothing is said to be missing that may exist."""
    report = report_on(workloads=[CLAIMED, workload(name="plain")], unread=[Unread("gpuclaims", "forbidden")])
    assert report.summary.new == {"mutated": 1, "unknown": 1}
    assert about(report, "its admission was not evaluated").severity == "changes"
    assert not [each for each in report.findings if "does not exist" in each.what]
