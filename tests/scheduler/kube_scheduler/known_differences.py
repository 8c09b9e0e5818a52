"""Where our decisions differ from kube-scheduler's on purpose, with the reason for each difference."""

from collections.abc import Callable

import msgspec

from tests.scheduler.kube_scheduler.comparison import Difference
from tests.scheduler.kube_scheduler.scores import BALANCE
from tests.scheduler.kube_scheduler.selectors import Manifest


class KnownDifference(msgspec.Struct, frozen=True):
    """A difference, and why it is kept.

    Attributes:
        name: a short name.
        reason: why we do not do as kube-scheduler does.
        explains: whether it explains a difference found in a cluster.
    """

    name: str
    reason: str
    explains: Callable[[Difference, Manifest], bool]


def _has_negative_namespace_selector(pod: Manifest) -> bool:
    affinity = pod["spec"].get("affinity", {})
    parts = [affinity[name] for name in ("podAffinity", "podAntiAffinity") if name in affinity]
    terms = [term for part in parts for term in part["requiredDuringSchedulingIgnoredDuringExecution"]]
    for part in parts:
        terms += [each["podAffinityTerm"] for each in part["preferredDuringSchedulingIgnoredDuringExecution"]]
    return any(
        expression["operator"] in ("NotIn", "DoesNotExist")
        for term in terms
        for expression in term.get("namespaceSelector", {}).get("matchExpressions", ())
    )


def _is_about_pod_affinity(difference: Difference) -> bool:
    if difference.subject in ("InterPodAffinity", "order"):
        return True
    return any("Affinity" in text and "pod" in text for text in (difference.expected, difference.actual))


def _uses_a_claim_on_a_missing_node(cluster: Manifest) -> bool:
    nodes = {node["metadata"]["name"] for node in cluster["nodes"]}
    return any(pod["spec"].get("volumes") and pod["spec"]["nodeName"] not in nodes for pod in cluster["pods"])


KNOWN_DIFFERENCES = (
    KnownDifference(
        "negative namespaceSelector",
        "kube-scheduler takes a namespaceSelector with NotIn or DoesNotExist of the pending pod for every namespace, a"
        " regression of v1.34 (kubernetes/kubernetes#141526). We do as the API's documentation says.",
        lambda difference, cluster: (
            _has_negative_namespace_selector(cluster["pod"]) and _is_about_pod_affinity(difference)
        ),
    ),
    KnownDifference(
        "another pod's ephemeral claim",
        "If a running pod does not own the claim of its ephemeral volume, kube-scheduler fails every attempt to place a"
        " pod with volumes. We count the claim and place the pod: other pods need not wait until the owner of that one"
        " solves the conflict.",
        lambda difference, _: (
            difference.expected.startswith("NodeVolumeLimits on ") and "(pod is not owner)" in difference.expected
        ),
    ),
    KnownDifference(
        "a claim in use on a missing node",
        "kube-scheduler ignores pods on a node whose Node object was deleted. A ReadWriteOncePod claim that such a pod"
        " uses stays taken for us until the pod is deleted too, because its containers may still run.",
        lambda difference, cluster: "VolumeInUse: " in difference.actual and _uses_a_claim_on_a_missing_node(cluster),
    ),
    KnownDifference(
        "balanced allocation",
        f"We have no score {BALANCE}: it weighs CPU against memory, and cards are what is scarce.",
        lambda difference, _: difference.subject == BALANCE,
    ),
    KnownDifference(
        "requests of the pod as a whole",
        "kube-scheduler's score of free CPU and memory ignores spec.resources of the pending pod, although its filter"
        " and the sums of running pods count them. We always count them.",
        lambda difference, cluster: (
            "resources" in cluster["pod"]["spec"] and difference.subject in ("NodeResourcesFit", "order")
        ),
    ),
    KnownDifference(
        "spread of a Service's pods",
        "kube-scheduler spreads pods without constraints that belong to a Service, ReplicaSet or StatefulSet. We watch"
        " none of these: what a pod prefers is what its own spec says.",
        lambda difference, cluster: (
            bool(cluster["services"])
            and not cluster["pod"]["spec"].get("topologySpreadConstraints")
            and difference.subject in ("PodTopologySpread", "order")
        ),
    ),
)
