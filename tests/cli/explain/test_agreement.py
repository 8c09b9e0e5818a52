"""`simulate`, `explain`, `preflight` and the event agree about fields, volumes and claims of every workload."""

from functools import partial
from pathlib import Path
from typing import Any

import pytest
import yaml

from allocation.settings import AllocationSettings
from allocation.steps import finish
from cli.explain.local_evaluator import LocalEvaluator
from cli.installation import rules
from cli.installation.rules import Rules
from cli.liveness.liveness import Liveness
from cli.manifests import manifest
from cli.workloads import expand
from scheduler.api.explanation_types import GpuClaimExplanation
from scheduler.api.manifest_pod import read_pod
from scheduler.api.request_body import Manifests
from scheduler.api.simulation_types import Simulation
from scheduler.cycle.result import Scheduled, Unschedulable
from scheduler.filters import unsupported_fields
from scheduler.objects import Pod
from scheduler.preemption.disruption_budgets import DisruptionBudgets
from scheduler.state.cluster_state import ClusterState
from tests.cli.preflight.snapshots import about, report_on
from tests.cli.preflight.snapshots import namespace as opted_in
from tests.scheduler.support import claims as gpu_claims
from tests.scheduler.support.builders import allocated, namespace, state
from tests.scheduler.support.scheduling import forget, schedule
from tests.scheduler.support.storage import claim, mounts, storage_class, volume
from webhook import dry_run
from webhook.settings import WebhookSettings

TEAM = "default"
HELD = {
    "spec.resourceClaims": {"resourceClaims": [{"name": "gpu", "resourceClaimName": "gpu"}]},
    "spec.schedulingGroup": {"schedulingGroup": {"podGroupName": "group"}},
    "spec.workloadRef": {"workloadRef": {"name": "group", "podGroup": "workers"}},
}
TEMPLATES = [
    {
        "metadata": {"name": "data"},
        "spec": {
            "accessModes": ["ReadWriteOnce"],
            "storageClassName": "local",
            "resources": {"requests": {"storage": "10Gi"}},
        },
    }
]
KINDS = {
    "Pod": "v1",
    "ReplicationController": "v1",
    "ReplicaSet": "apps/v1",
    "Deployment": "apps/v1",
    "StatefulSet": "apps/v1",
    "DaemonSet": "apps/v1",
    "Job": "batch/v1",
    "CronJob": "batch/v1",
}

every_kind = pytest.mark.parametrize("kind", KINDS)


def workload(
    kind: str, *, of_set: dict[str, Any] | None = None, claim: str = "", count: int = 1, **more: Any
) -> dict[str, Any]:
    """Return a workload whose pods request a share of a card; `of_set` are fields of its own spec.

    With a `claim`, two containers of the pods request its `count` of cards.
    """
    limits = {"nvidia.com/gpu": count, **({} if claim else {"nvidia.com/gpumem": 100})}
    names = ("main", "side") if claim else ("main",)
    containers = [{"name": name, "image": "x", "resources": {"limits": limits}} for name in names]
    spec = {"containers": containers, **more}
    annotations = {"gpu.scheduling/claim": claim} if claim else {}
    pod = {"metadata": {"labels": {"app": "x"}, "annotations": annotations}, "spec": spec}
    inner: dict[str, Any] = {"template": pod, **(of_set or {})}
    metadata = {"name": "train", "namespace": TEAM, **({"annotations": annotations} if kind == "Pod" else {})}
    own = pod["spec"] if kind == "Pod" else {"jobTemplate": {"spec": inner}} if kind == "CronJob" else inner
    return {"apiVersion": KINDS[kind], "kind": kind, "metadata": metadata, "spec": own}


def site() -> ClusterState:
    """Return two nodes with room for the pods, and a class whose claims wait for their pods."""
    made = state("n1", "n2")
    made.limits.set_namespace(namespace(TEAM, **{"gpu.scheduling/injection": "enabled"}))
    made.storage.set_class(storage_class())
    return made


def evaluator(made: ClusterState, chosen: Rules | None = None) -> LocalEvaluator:
    """Return what the command line evaluates pods with."""
    alive = Liveness(installed=True, parts=())
    return LocalEvaluator(made, chosen or Rules(), alive, budgets=DisruptionBudgets(), namespace=TEAM, cards_of=())


def simulate(made: ClusterState, document: dict[str, Any]) -> Simulation:
    """Return what `simulate` shows of the workload."""
    (each,) = expand.of(document)
    first, _ = evaluator(made).simulate(each, every=False)
    return first


def created(made: ClusterState, document: dict[str, Any], number: int = 0) -> Pod:
    """Return the pod of the workload with a number, as it is after its creation; that of a DaemonSet is on n2."""
    (each,) = expand.of(document)
    admit = partial(dry_run.dry_run, allocation=AllocationSettings(), settings=WebhookSettings())
    manifests = Manifests(each.on(["n2"]).make(number))
    pod = read_pod(made, manifests, admit, namespace=TEAM, uid=f"uid-{number}").pod
    return Pod(pod.metadata, pod.spec, pod.status)


def event(made: ClusterState, pod: Pod) -> str | None:
    """Return the message of the event for a pod that is not placed, or None for one that is."""
    result = finish(schedule(made, pod))
    if isinstance(result, Scheduled):
        forget(made, pod)
        return None
    assert isinstance(result, Unschedulable)
    return result.note


def test_every_unsupported_field_is_covered() -> None:
    """A field that is added to the list is added here."""
    assert {f"spec.{field}" for field in unsupported_fields.UNSUPPORTED} == set(HELD)


@every_kind
@pytest.mark.parametrize("field", HELD)
def test_all_name_the_field_that_holds_a_pod(kind: str, field: str) -> None:
    """The words are the same everywhere: the field, and the remedy."""
    made, document = site(), workload(kind, **HELD[field])
    message = f"PodHeld: {unsupported_fields.remedy(field)}"
    pod = created(made, document)
    assert event(made, pod) == message
    explained, simulated = evaluator(made).explain(pod), simulate(made, document)
    assert (explained.outcome, explained.note) == ("held", message)
    assert simulated.error is not None
    assert (simulated.error.type, simulated.error.message) == ("Held", message)
    if kind != "Pod":  # preflight reads the templates of controllers; a bare pod exists already
        report = report_on(workloads=[document])
        assert [each.what for each in report.findings if "held" in each.what] == [
            f"would be held: {unsupported_fields.remedy(field)}"
        ]


@every_kind
@pytest.mark.parametrize(
    ("state_of_claim", "reason"),
    [
        ("missing", 'VolumeClaimNotReady: persistentvolumeclaim "data" not found'),
        ("waiting", 'VolumeClaimNotReady: pod has unbound immediate PersistentVolumeClaims: "data"'),
        ("unbound", ""),
        ("bound", ""),
    ],
)
def test_all_agree_about_a_claim(kind: str, state_of_claim: str, reason: str) -> None:
    """A pod waits for the claim that they name, or goes to the node of its volume."""
    where = {"nodeSelector": {"kubernetes.io/hostname": "n2"}} if kind == "DaemonSet" else {}
    made, document = site(), workload(kind, volumes=mounts("data"), **where)
    is_bound = state_of_claim == "bound"
    if state_of_claim != "missing":
        uid = "uid-data" if is_bound else ""
        made.storage.set_volume(volume("pv", node="n2", claim="data" if is_bound else "", claim_uid=uid))
        class_name = "no-such" if state_of_claim == "waiting" else "local"
        made.storage.set_claim(claim("data", volume="pv" if is_bound else "", storage_class=class_name))
    pod = created(made, document)
    explained, simulated = evaluator(made).explain(pod), simulate(made, document)
    assert simulated.explanation is not None
    for each in (explained, simulated.explanation):
        (shown,) = each.claims
        assert (shown.name, shown.state, shown.exists) == ("data", state_of_claim, state_of_claim != "missing")
    assert (event(made, pod) or "") == reason
    if reason:
        assert (explained.outcome, explained.note) == ("waits", reason)
        assert simulated.error is not None
        assert (simulated.error.type, simulated.error.message) == ("FitError", reason)
    else:
        assert (explained.node, simulated.schedule_result.suggested_host) == ("n2", "n2")
        assert explained.claims[0].volume == "pv"
        assert "n2" in explained.claims[0].usable_on
    assert report_on(workloads=[document]).summary.held == 0


@every_kind
@pytest.mark.parametrize("exclusivity", ["Exclusive", "Shared"])
@pytest.mark.parametrize("fits", [True, False])
def test_all_agree_about_a_gpu_claim(kind: str, exclusivity: str, fits: bool) -> None:  # noqa: FBT001
    """The pod gets the cards that they name, in each container, or waits for the same reason."""
    where = {"nodeSelector": {"kubernetes.io/hostname": "n2"}} if kind == "DaemonSet" else {}
    cards: dict[str, Any] = {"count": 2 if fits else 3, "exclusivity": exclusivity}
    made, document = site(), workload(kind, claim="cards", count=cards["count"], **where)
    made.set_pod(allocated("runs", node="n1", memory=300))
    claimed = gpu_claims.claim("cards", **cards)
    made.set_claim(claimed)
    pod = created(made, document)
    explained, simulated = evaluator(made).explain(pod), simulate(made, document)
    assert simulated.explanation is not None
    for each in (explained, simulated.explanation):
        assert each.claim == GpuClaimExplanation("cards", exclusivity, exists=True)  # type: ignore[arg-type]  # a literal
        assert [(ask.container, ask.cards, ask.whole) for ask in each.asks] == [
            ("main", cards["count"], exclusivity == "Exclusive")
        ]
    assert explained.note == simulated.explanation.note == (event(made, pod) or explained.note)
    if not fits:
        assert (explained.outcome, event(made, pod)) == ("waits", explained.note)
        assert "NodeInsufficientDevice" in explained.note
        return
    decision = finish(schedule(made, pod))
    assert isinstance(decision, Scheduled)
    assert decision.allocation is not None
    given = [(name, share.uuid) for name, shares in decision.allocation.containers.items() for share in shares]
    for each in (explained, simulated.explanation):
        assert (each.node, [(share.container, share.uuid) for share in each.shares]) == (decision.node, given)
    if exclusivity == "Exclusive" or kind == "DaemonSet":
        assert decision.node == "n2"  # one card of n1 is in use; the DaemonSet's pod is tied to n2
    assert {name for name, _ in given} == {"main", "side"}


@every_kind
def test_all_agree_about_a_missing_gpu_claim(kind: str) -> None:
    """A new pod is refused; a pod whose claim was deleted waits for it with the words of the event."""
    made, document = site(), workload(kind, claim="cards")
    claimed = gpu_claims.claim("cards")
    made.set_claim(claimed)
    pod = created(made, document)
    made.drop_claim(claimed)
    explained, simulated = evaluator(made).explain(pod), simulate(made, document)
    assert (explained.outcome, explained.claim) == ("waits", GpuClaimExplanation("cards"))
    assert explained.note == event(made, pod)
    assert explained.note.startswith("GpuClaimNotFound: GpuClaim cards does not exist")
    assert simulated.error is not None
    assert simulated.error.type == "NotAdmitted"
    assert "GpuClaim cards does not exist in namespace default" in simulated.error.message
    if kind != "Pod":
        missing = about(report_on(workloads=[document], namespaces=[opted_in(TEAM)]), "GpuClaim cards does not exist")
        assert missing.severity == "blocks"


def test_a_gpu_claim_of_the_files_need_not_exist() -> None:
    """It counts for the pods that name it, with and without --all, and nothing is created."""
    (each,) = expand.of(workload("Deployment", of_set={"replicas": 3}, claim="cards", count=2))
    text = yaml.safe_dump(gpu_claims.manifest("cards", count=2, labels={"kubernetes.io/hostname": "n2"}))
    (of_file,), made = manifest.read(text), site()
    first, replicas = evaluator(made).simulate(each, every=True, claims=[of_file.content])
    assert first.explanation is not None
    assert first.explanation.claim == GpuClaimExplanation("cards", "Exclusive", exists=False)
    assert (replicas.fit, replicas.nodes) == (1, {"n2": 1})
    alone, _ = evaluator(made).simulate(each, every=False)
    assert alone.error is not None
    assert alone.error.type == "NotAdmitted"


@every_kind
def test_a_manifest_in_yaml_is_simulated_as_one_in_json(kind: str) -> None:
    """Its strings remember how they are written, so they are not the same type."""
    terms = [{"matchExpressions": [{"key": "kubernetes.io/hostname", "operator": "In", "values": ["n2"]}]}]
    affinity = {"nodeAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": {"nodeSelectorTerms": terms}}}
    document = workload(kind, affinity=affinity)
    (of_file,) = manifest.read(yaml.safe_dump(document))
    assert simulate(site(), of_file.plain) == simulate(site(), document)
    assert simulate(site(), of_file.plain).schedule_result.suggested_host == "n2"


def with_volumes() -> ClusterState:
    """Return the same nodes with an available volume on each."""
    made = site()
    for name, node in (("pv-1", "n2"), ("pv-2", "n1")):
        made.storage.set_volume(volume(name, node=node))
    return made


def test_the_claims_of_a_stateful_set_need_not_exist() -> None:
    """What is predicted before they do comes true: each pod goes to the node of its volume, or waits for one."""
    document = workload("StatefulSet", of_set={"replicas": 3, "volumeClaimTemplates": TEMPLATES})
    (each,) = expand.of(document)
    first, replicas = evaluator(with_volumes()).simulate(each, every=True)
    assert first.explanation is not None
    assert [(shown.name, shown.state, shown.exists) for shown in first.explanation.claims] == [
        ("data-train-0", "unbound", False)
    ]
    assert (replicas.fit, replicas.nodes) == (2, {"n1": 1, "n2": 1})
    assert replicas.unfit is not None
    assert replicas.unfit.error is not None
    made, results = with_volumes(), []
    for number in range(3):
        made.storage.set_claim(claim(f"data-train-{number}"))
        results.append(finish(schedule(made, created(made, document, number))))
    assert [each.node for each in results if isinstance(each, Scheduled)] in (["n1", "n2"], ["n2", "n1"])
    assert isinstance(results[2], Unschedulable)
    assert results[2].note == replicas.unfit.error.message
    assert "VolumeNotAvailable" in results[2].note


def test_claims_of_ephemeral_volumes_and_of_files_need_not_exist() -> None:
    """The former follow from the pod, the latter are read with it; a claim that no manifest creates is missing."""
    template = {"spec": TEMPLATES[0]["spec"]}
    volumes = [{"name": "scratch", "ephemeral": {"volumeClaimTemplate": template}}, *mounts("data")]
    (each,) = expand.of(workload("Deployment", volumes=volumes))
    of_file = {**TEMPLATES[0], "apiVersion": "v1", "kind": "PersistentVolumeClaim"}
    made = with_volumes()
    made.storage.set_volume(volume("pv-3", node="n2"))
    alone, _ = evaluator(made).simulate(each, every=False)
    together, _ = evaluator(made).simulate(each, every=False, claims=[of_file])
    assert alone.error is not None
    assert alone.error.message == 'VolumeClaimNotReady: persistentvolumeclaim "data" not found'
    assert together.schedule_result.suggested_host == "n2"
    assert together.explanation is not None
    assert {shown.volume for shown in together.explanation.claims} == {"pv-1", "pv-3"}
    assert not len(made.queue)
    assert made.volumes.objects.claims == {}


def test_installed_weights_decide_between_cards_and_preferences(tmp_path: Path) -> None:
    """The pod prefers the empty node n2, binpack prefers n1."""
    terms = [{"key": "kubernetes.io/hostname", "operator": "In", "values": ["n2"]}]
    preferred = [{"weight": 1, "preference": {"matchExpressions": terms}}]
    affinity = {"nodeAffinity": {"preferredDuringSchedulingIgnoredDuringExecution": preferred}}
    (each,) = expand.of(workload("Deployment", affinity=affinity))
    nodes = {}
    for cards in (100, 1):
        (tmp_path / "config.yaml").write_text(f"scheduler: {{weights: {{cards: {cards}}}}}")
        made = site()
        made.set_pod(allocated("runs", node="n1", memory=300))
        chosen = rules.of_file(str(tmp_path / "config.yaml"))
        nodes[cards] = evaluator(made, chosen).simulate(each, every=False)[0].schedule_result.suggested_host
    assert nodes == {100: "n1", 1: "n2"}
