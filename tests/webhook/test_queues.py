"""GpuQueues at admission: which queue a pod may name, and what it requires in one line."""

from collections.abc import Callable, Mapping
from typing import Any

import msgspec
import pytest

from allocation.fairness.queue_spec import QueueSpec
from allocation.names import QUEUE, RESREQ
from allocation.settings import AllocationSettings
from cluster.gpu_queue import GpuQueue, QueueMeta
from webhook.membership import Membership
from webhook.mutation_cache import MutationCache
from webhook.queues import ClusterQueues, LabelledMeta, LabelledNamespace
from webhook.quotas import Quotas
from webhook.review import Pod
from webhook.settings import WebhookSettings

Make = Callable[..., Any]
COUNT = "nvidia.com/gpu"
GPU = {"name": "main", "resources": {"limits": {COUNT: "1"}}}


class Cluster:
    """A lookup with one queue, team-a, for namespaces with label team=a."""

    def __init__(self, *, namespace_labels: Mapping[str, str] | None = None, **spec: Any) -> None:
        self._labels = {"team": "a"} if namespace_labels is None else namespace_labels
        fields = {"namespaceSelector": {"matchLabels": {"team": "a"}}, **spec}
        self._lookup = ClusterQueues(None)  # type: ignore[arg-type] -- the copies are filled here
        queue = GpuQueue(QueueMeta(name="team-a"), msgspec.convert(fields, QueueSpec))
        self._lookup.queues.add_if_new(queue)
        self._lookup.namespaces.add_if_new(LabelledNamespace(LabelledMeta(name="team", labels=dict(self._labels))))

    def of_pod(self, labels: Mapping[str, str], namespace: str) -> Membership | None:
        """See MembershipLookup."""
        return self._lookup.of_pod(labels, namespace)


def named(pod: dict[str, Any], queue: str = "team-a", **annotations: str) -> dict[str, Any]:
    """Return a pod that names a queue."""
    return {**pod, "metadata": {**pod["metadata"], "labels": {QUEUE: queue}, "annotations": annotations}}


def requiring(pod: dict[str, Any], text: str) -> dict[str, Any]:
    """Return a pod with annotation `gpu.scheduling/resreq`."""
    return {**pod, "metadata": {**pod["metadata"], "annotations": {RESREQ: text}}}


def resources(pod: dict[str, Any], container: int = 0) -> Any:
    """Return the resources of a container."""
    return pod["spec"]["containers"][container].get("resources")


def test_a_pod_may_name_a_queue_that_is_for_its_namespace(admit: Make, pod: Make) -> None:
    """Nothing but what every GPU pod gets is changed."""
    verdict = admit(named(pod(GPU)), memberships=Cluster())
    assert verdict.allowed
    assert not verdict.warnings
    assert verdict.pod["spec"]["schedulerName"] == "tranche"


def test_a_requirement_that_is_written_as_resources_already_makes_the_pod_ours(admit: Make, pod: Make) -> None:
    """Also without GPUs: the pods of a completed template have both the annotation and the resources."""
    sent = requiring(pod({"name": "main", "resources": {"requests": {"cpu": "2"}}}), "cpu=2")
    verdict = admit(sent)
    assert verdict.pod["spec"]["schedulerName"] == "tranche"
    assert resources(verdict.pod) == resources(sent)


@pytest.mark.parametrize("is_own", [True, False])
def test_a_queue_for_other_namespaces_is_refused(admit: Make, pod: Make, *, is_own: bool) -> None:
    """Whether the pod names it or its namespace; the message says who, which queue, and what to do."""
    labels = {"team": "b"} if is_own else {"team": "b", QUEUE: "team-a"}
    sent = named(pod(GPU)) if is_own else pod(GPU)
    verdict = admit(sent, memberships=Cluster(namespace_labels=labels))
    assert not verdict.allowed
    assert verdict.code == 403
    assert f"label {QUEUE} of the {'pod' if is_own else 'namespace team'} names GpuQueue team-a" in verdict.message
    assert "spec.namespaceSelector does not match namespace team" in verdict.message


def test_a_queue_without_a_selector_is_for_nobody(admit: Make, pod: Make) -> None:
    """An administrator has to say which namespaces it is for; {} is for all."""
    assert not admit(named(pod(GPU)), memberships=Cluster(namespaceSelector=None)).allowed
    assert admit(named(pod(GPU)), memberships=Cluster(namespaceSelector={}, namespace_labels={})).allowed


def test_an_unknown_queue_is_a_warning(admit: Make, pod: Make) -> None:
    """The pod waits for it, so that pods and queues can be created in any order."""
    verdict = admit(named(pod(GPU), "team-z"), memberships=Cluster())
    assert verdict.allowed
    assert verdict.warnings == [
        "GpuQueue team-z does not exist: the pod waits until it does (see 'kubectl get gpuqueues')"
    ]
    without_gpus = admit(named(pod({"name": "main"}), "team-z", **{RESREQ: "cpu=4"}), memberships=Cluster())
    assert without_gpus.warnings == verdict.warnings


def test_a_pod_without_a_gpu_may_name_any_queue(admit: Make, pod: Make) -> None:
    """As long as it requests resources of its own, it is not ours."""
    plain = {"name": "main", "resources": {"requests": {"cpu": "1"}}}
    verdict = admit(named(pod(plain)), memberships=Cluster(namespace_labels={"team": "b"}))
    assert verdict.allowed
    assert not verdict.operations


def test_a_requirement_becomes_requests(admit: Make, pod: Make) -> None:
    """GPUs as limit and request, CPU and memory as requests; then it is a GPU pod like any other."""
    verdict = admit(requiring(pod({"name": "main"}, {"name": "side"}), "cpu=4,mem=16g,gpu=2"))
    assert resources(verdict.pod)["limits"][COUNT] == "2"
    assert resources(verdict.pod)["requests"]["cpu"] == "4"
    assert resources(verdict.pod)["requests"]["memory"] == str(16 * 1024**3)
    assert "cpu" not in resources(verdict.pod)["limits"]
    assert resources(verdict.pod, 1) is None
    assert verdict.pod["spec"]["schedulerName"] == "tranche"
    assert any(each["name"] == "CUDA_VISIBLE_DEVICES" for each in verdict.pod["spec"]["containers"][0]["env"])
    assert verdict.pod["metadata"]["annotations"][RESREQ] == "cpu=4,mem=16g,gpu=2"


def test_a_requirement_without_gpus_is_ours_too(admit: Make, pod: Make) -> None:
    """The queue orders it; the containers are left alone otherwise."""
    verdict = admit(requiring(pod({"name": "main"}), "cpu=4,mem=16g"))
    assert verdict.pod["spec"]["schedulerName"] == "tranche"
    assert resources(verdict.pod) == {"requests": {"cpu": "4", "memory": str(16 * 1024**3)}}
    assert "env" not in verdict.pod["spec"]["containers"][0]


@pytest.mark.parametrize("text", ["cpu=4,mem=16g,gpu=2", "gpu=1", "cpu=1", "mem=1.5g"])
def test_admission_of_an_admitted_pod_changes_nothing(admit: Make, pod: Make, text: str) -> None:
    """The API server may ask again after another webhook."""
    once = admit(requiring(pod({"name": "main"}), text))
    again = admit(once.pod)
    assert again.allowed, again.message
    assert not again.operations


@pytest.mark.parametrize(
    ("text", "entry"),
    [
        ("", "''"),
        ("cpu=1,", "''"),
        ("cpu", "'cpu'"),
        ("cpu=1=2", "'cpu=1=2'"),
        ("cpu=", "'cpu='"),
        ("foo=1", "'foo=1'"),
        ("cpu=x", "'cpu=x'"),
        ("mem=1z", "'mem=1z'"),
        ("gpu=-1", "'gpu=-1'"),
    ],
)
def test_a_malformed_requirement_is_refused(admit: Make, pod: Make, text: str, entry: str) -> None:
    """The message names the field and the entry."""
    verdict = admit(requiring(pod({"name": "main"}), text))
    assert (verdict.allowed, verdict.code) == (False, 400)
    assert f'metadata.annotations["{RESREQ}"] holds {text!r}: ' in verdict.message
    assert f"entry {entry}" in verdict.message


@pytest.mark.parametrize(
    "containers",
    [
        [GPU],
        [{"name": "main", "resources": {"requests": {"cpu": "2"}}}],
        [{"name": "side"}, GPU],
        [{"name": "main", "resources": {"limits": {COUNT: "2", "nvidia.com/gpumem": "100"}}}],
    ],
)
def test_resources_beside_a_requirement_are_refused(admit: Make, pod: Make, containers: Any) -> None:
    """Nobody has to know which of the two counts."""
    verdict = admit(requiring(pod(*containers), "cpu=4,gpu=1"))
    assert (verdict.allowed, verdict.code) == (False, 403)
    assert f"has resources beside annotation {RESREQ}" in verdict.message


def test_a_pod_of_a_queue_without_resources_requires_what_the_queue_says(admit: Make, pod: Make) -> None:
    """Or else what the settings say: one CPU and one GiB, without a GPU."""
    of_queue = admit(named(pod({"name": "main"})), memberships=Cluster(resreq="cpu=2,gpu=1"))
    assert resources(of_queue.pod)["limits"][COUNT] == "1"
    assert resources(of_queue.pod)["requests"]["cpu"] == "2"
    of_settings = admit(named(pod({"name": "main"})), memberships=Cluster())
    assert resources(of_settings.pod) == {"requests": {"cpu": "1", "memory": str(1024**3)}}
    configured = AllocationSettings(default_resreq="cpu=3")
    assert resources(admit(named(pod({"name": "main"})), memberships=Cluster(), allocation=configured).pod) == {
        "requests": {"cpu": "3"}
    }


def test_the_own_requirement_comes_before_that_of_the_queue(admit: Make, pod: Make) -> None:
    """Explicit, then the queue's, then the settings'."""
    sent = named(pod({"name": "main"}), **{RESREQ: "cpu=7"})
    assert resources(admit(sent, memberships=Cluster(resreq="cpu=2,gpu=1")).pod) == {"requests": {"cpu": "7"}}


def test_a_namespace_that_names_a_queue_does_not_change_its_other_pods(admit: Make, pod: Make) -> None:
    """A web server there stays what it is."""
    verdict = admit(
        pod({"name": "main"}), memberships=Cluster(resreq="gpu=1", namespace_labels={"team": "a", QUEUE: "team-a"})
    )
    assert not verdict.operations


def test_a_changed_queue_changes_the_next_pod(pod: Make) -> None:
    """A cached decision never outlives the queue that it was made for."""
    cached = MutationCache(allocation=AllocationSettings(), settings=WebhookSettings())
    sent = msgspec.convert(named(pod({"name": "main"})), Pod)
    patches = [
        bytes(
            cached.get(
                sent, username="", quotas=Quotas(), claim=None, membership=Membership("team-a", resreq=text)
            ).patch
        )
        for text in ("gpu=1", "gpu=2", "gpu=1")
    ]
    assert patches[0] == patches[2] != patches[1]


def test_a_malformed_default_fails_the_start() -> None:
    """With the name of the setting and of the entry."""
    with pytest.raises(msgspec.ValidationError, match=r"default_resreq: .*entry 'gpu=x'"):
        msgspec.convert({"default_resreq": "cpu=1,gpu=x"}, AllocationSettings)
