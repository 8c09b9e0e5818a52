"""New pods are judged by the webhook's own function and the loop's own list."""

from typing import Any

import msgspec
import pytest

from cli.migration.survey import Rules
from cluster.resource_quota import ResourceQuota
from tests.cli.migration.surveys import about, container, judged, pod, workload
from webhook.settings import WebhookSettings

CLAIM = {"volumes": [{"name": "data", "persistentVolumeClaim": {"claimName": "data"}}]}


@pytest.mark.parametrize("kind", ["Deployment", "StatefulSet", "DaemonSet", "ReplicaSet", "Job", "CronJob"])
def test_every_template_is_judged(kind: str) -> None:
    """What would change is said, whatever makes the pod."""
    report = judged(workloads=[workload(kind)])
    assert report.summary.new == {"mutated": 1}
    found = about(report, "admission would change")
    assert (found.severity, found.objects) == ("changes", (f"{kind} team/web",))
    assert "schedulerName tranche, its GPU variables refer to annotations" in found.what


def test_templates_that_change_alike_are_one_finding() -> None:
    """A thousand Deployments do not make a thousand lines."""
    report = judged(workloads=[workload(name=f"w{each:04}") for each in range(1000)])
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
            "user 'system:serviceaccount:kube-system:deployment-controller' is not trusted with it",
        ),
        (workload("Deployment", {"name": 3, **container(name="x"), "resources": {"limits": []}}), "cannot be read"),
    ],
)
def test_a_refusal_has_the_webhooks_words(made: dict[str, Any], message: str) -> None:
    """The message is the one that the user would see."""
    report = judged(workloads=[made])
    assert report.summary.new == {"refused": 1}
    assert message in about(report, "would be refused").what
    assert not report.is_clear


def test_a_quota_that_a_pod_exceeds_by_itself_refuses_it() -> None:
    """The namespace's quotas are the webhook's, too."""
    quota = msgspec.convert(
        {"metadata": {"name": "q", "namespace": "team"}, "spec": {"hard": {"limits.nvidia.com/gpumem": "2k"}}},
        ResourceQuota,
    )
    report = judged(workloads=[workload()], quotas=[quota])
    assert "exceeding resource quota" in about(report, "would be refused").what


def test_loop_mode_holds_what_extender_mode_places() -> None:
    """A claim is no matter for admission, only for who evaluates nodes."""
    report = judged(workloads=[workload(**CLAIM)])
    assert about(report, "would be held").severity == "blocks"
    assert "spec.volumes[data]" in about(report, "would be held").what
    assert report.summary.held == 1
    assert judged(Rules(extender=True), workloads=[workload(**CLAIM)]).is_clear


def test_a_pod_for_hamis_scheduler_needs_an_alias() -> None:
    """Its template names a scheduler that will place nothing; with the alias it is ours."""
    made = workload(schedulerName="hami-scheduler")
    report = judged(workloads=[made])
    assert report.summary.new == {"left alone": 1}
    assert "webhook.aliases: [hami-scheduler]" in about(report, "Deployment team/web").next_step
    assert not report.is_clear
    told = judged(Rules(webhook=WebhookSettings(aliases=("hami-scheduler",))), workloads=[made])
    assert told.summary.new == {"mutated": 1}


@pytest.mark.parametrize(
    ("made", "said"),
    [
        (workload(schedulerName="volcano"), "'volcano' gives it to another scheduler"),
        (workload(labels={"gpu.scheduling/injection": "disabled"}), "its own label opts it out"),
        (workload(labels={"hami.io/webhook": "ignore"}), "its own label opts it out"),
        (workload(namespace="kube-system"), "admission never serves namespace kube-system"),
    ],
)
def test_who_stays_outside_is_told(made: dict[str, Any], said: str) -> None:
    """Other schedulers' pods, those that opted out, and system namespaces."""
    report = judged(workloads=[made])
    assert report.summary.new == {"left alone": 1}
    assert about(report, said).severity == "changes"


def test_only_the_first_maker_speaks() -> None:
    """A Deployment speaks for its ReplicaSets, a CronJob for its Jobs; a Job that has ended makes no more pods."""
    ended = {"conditions": [{"type": "Complete", "status": "True"}]}
    report = judged(
        workloads=[
            workload("ReplicaSet", owner="Deployment"),
            workload("Job", owner="CronJob"),
            workload("Job", status=ended),
        ],
    )
    assert report.summary.new == {}


def test_a_pod_that_waits_must_be_made_anew() -> None:
    """Admission sees a pod once; what HAMi's webhook and scheduler wrote into it is not held against it."""
    written = {"hami.io/vgpu-node": "n1"}
    report = judged(
        pods=[
            pod("bare", schedulerName="hami-scheduler", annotations=written),
            pod("owned", owner="ReplicaSet"),
            pod("of-a-custom-kind", owner="PyTorchJob", **CLAIM),
            pod("ours", schedulerName="tranche"),
            pod("out", labels={"gpu.scheduling/injection": "disabled"}),
        ]
    )
    waiting = about(report, "a pod is not admitted twice")
    assert waiting.objects == ("pod team/bare", "pod team/of-a-custom-kind", "pod team/owned")
    assert report.summary.new == {"left alone": 1, "mutated": 2}
    assert about(report, "would be held").objects == ("pod team/of-a-custom-kind",)


def test_what_a_user_sets_and_loses_is_told() -> None:
    """The webhook's warnings are told before anybody meets them."""
    made = workload("Deployment", container(env=[{"name": "CUDA_VISIBLE_DEVICES", "value": "0"}]))
    assert (
        "CUDA_VISIBLE_DEVICES is set by the scheduler" in about(judged(workloads=[made]), "admission would warn").what
    )
