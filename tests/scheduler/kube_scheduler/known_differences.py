"""Where our decisions differ from kube-scheduler's on purpose, with the reason for each difference."""

from collections.abc import Callable

import msgspec

from tests.scheduler.kube_scheduler.comparison import Difference
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
    terms = [
        term
        for part in ("podAffinity", "podAntiAffinity")
        for term in affinity.get(part, {}).get("requiredDuringSchedulingIgnoredDuringExecution", ())
    ]
    return any(
        expression["operator"] in ("NotIn", "DoesNotExist")
        for term in terms
        for expression in term.get("namespaceSelector", {}).get("matchExpressions", ())
    )


def _uses_a_claim_on_a_missing_node(cluster: Manifest) -> bool:
    nodes = {node["metadata"]["name"] for node in cluster["nodes"]}
    return any(pod["spec"].get("volumes") and pod["spec"]["nodeName"] not in nodes for pod in cluster["pods"])


KNOWN_DIFFERENCES = (
    KnownDifference(
        "negative namespaceSelector",
        "kube-scheduler takes a namespaceSelector with NotIn or DoesNotExist of the pending pod for every namespace, a"
        " regression of v1.34 (kubernetes/kubernetes#141526). We do as the API's documentation says.",
        lambda difference, cluster: (
            difference.subject in ("feasible", "infeasible", "reason", "resolvable")
            and "Affinity" in difference.expected + difference.actual
            and _has_negative_namespace_selector(cluster["pod"])
        ),
    ),
    KnownDifference(
        "another pod's ephemeral claim",
        "If a running pod does not own the claim of its ephemeral volume, kube-scheduler fails every attempt to place a"
        " pod with volumes that its node might attach. We count the claim and place the pod: it belongs to the owner of"
        " that pod to solve the conflict, and other pods need not wait for that.",
        lambda difference, _: (
            difference.expected.startswith("NodeVolumeLimits on ") and "(pod is not owner)" in difference.expected
        ),
    ),
    KnownDifference(
        "a claim in use on a missing node",
        "kube-scheduler ignores pods on a node whose Node object was deleted. A ReadWriteOncePod claim that such a pod"
        " uses stays taken for us until the pod is deleted too, because its containers may still run.",
        lambda difference, cluster: (
            difference.actual.startswith("VolumeInUse: ") and _uses_a_claim_on_a_missing_node(cluster)
        ),
    ),
)
