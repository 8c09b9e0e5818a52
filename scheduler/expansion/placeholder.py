"""The pod by which an autoscaler is asked for a node: it requests all cards of one, and no scheduler places it."""

from typing import Any, Final

import msgspec

from allocation import names
from scheduler import selectors
from scheduler.expansion.template import NodeTemplate
from scheduler.filters.node_cache import NodeCache
from scheduler.filters.resources import CPU, MEMORY, Amounts, allocatable
from scheduler.objects import Node, Pod

SCHEDULER_NAME: Final = "tranche-placeholder"
"""No scheduler has this name."""
_IMAGE: Final = "registry.k8s.io/pause:3.10"
"""Never pulled."""


def manifest(name: str, template: NodeTemplate, pod: Pod, *, amounts: Amounts, resource: str) -> dict[str, Any]:
    """Return the request for a node like `template` that takes `pod`, with these `amounts` of CPU and memory.

    It asks for all cards by `resource`; if that is empty, the amounts have to fill the node.
    """
    limits = {resource: str(template.cards)} if resource else {}
    requests = {**limits, "cpu": f"{amounts.get(CPU, 0)}m", "memory": str(amounts.get(MEMORY, 0))}
    context = {
        "allowPrivilegeEscalation": False,
        "capabilities": {"drop": ["ALL"]},
        "runAsNonRoot": True,
        "seccompProfile": {"type": "RuntimeDefault"},
    }
    container = {
        "name": "node",
        "image": _IMAGE,
        "resources": {"limits": limits, "requests": requests},
        "securityContext": context,
    }
    spec: dict[str, Any] = {
        "schedulerName": SCHEDULER_NAME,
        "containers": [container],
        "nodeSelector": {**template.selector, **pod.spec.node_selector},
        "tolerations": [msgspec.to_builtins(each) for each in pod.spec.tolerations],
        "automountServiceAccountToken": False,
        "enableServiceLinks": False,
        "terminationGracePeriodSeconds": 0,
    }
    affinity = pod.spec.affinity.node_affinity if pod.spec.affinity is not None else None
    if affinity is not None and affinity.required is not None:
        required = msgspec.to_builtins(affinity.required)
        spec["affinity"] = {"nodeAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": required}}
    labels = {names.PLACEHOLDER: template.name}
    metadata = {"name": name, "namespace": names.SYSTEM_NAMESPACE, "labels": labels}
    return {"apiVersion": "v1", "kind": "Pod", "metadata": metadata, "spec": spec}


def amounts_of(node_cache: NodeCache, template: NodeTemplate, pod: Pod, *, fills: bool) -> Amounts:
    """Return the CPU and memory that a request has: those of the pod, or CPU that `fills` the node beside its daemons.

    A tenth is left free, because machines of one type differ a little.
    """
    own, _ = node_cache.requests(pod)
    amounts = {CPU: own.get(CPU, 0), MEMORY: own.get(MEMORY, 0)}
    if fills:
        daemons = sum(node_cache.requests(each)[0].get(CPU, 0) for each in template.daemons)
        free = allocatable(template.node.status.allocatable).get(CPU, 0) - daemons
        amounts[CPU] = max(amounts[CPU], free * 9 // 10)
    return amounts


def fits_full_nodes(node_cache: NodeCache, template: NodeTemplate, resource: str) -> bool:
    """Whether a request for all cards of a node by `resource` fits nodes of the group whose cards are full.

    A device plugin may advertise a card several times, once for each of its slots. By the sum of them an autoscaler
    finds room on such a node, where the ledger has none, and brings no other.
    """
    return any(
        node_cache.allocatable[name].get(resource, 0) > template.cards
        and template.selector.items() <= node_cache.nodes[name].metadata.labels.items()
        for name in node_cache.advertising
    )


def is_placeholder(pod: Pod) -> bool:
    """Whether a pod is a request for a node."""
    return pod.metadata.namespace == names.SYSTEM_NAMESPACE and names.PLACEHOLDER in pod.metadata.labels


def is_answered_by(placeholder: Pod, node: Node) -> bool:
    """Whether a node came after the request, and is one that the request names."""
    asked, came = placeholder.metadata.creation_timestamp or "", node.metadata.creation_timestamp or ""
    return came >= asked and selectors.node_matcher(placeholder.spec)(node)
