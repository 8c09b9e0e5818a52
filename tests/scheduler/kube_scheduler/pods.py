"""Random pods: what they request, tolerate, prefer, and require of nodes and of other pods."""

from collections.abc import Sequence

from tests.scheduler.kube_scheduler import selectors
from tests.scheduler.kube_scheduler.selectors import NAMESPACES, TOPOLOGY_KEYS, Chance, Manifest

IMAGES = ("registry.example/train:1", "registry.example/serve:2", "registry.example/tool", "alpine@sha256:ab")
TAINTS = (
    {"key": "team", "value": "red", "effect": "NoSchedule"},
    {"key": "team", "value": "blue", "effect": "NoExecute"},
    {"key": "old", "effect": "PreferNoSchedule"},
    {"key": "slow", "value": "yes", "effect": "PreferNoSchedule"},
)
CORDON = {"key": "node.kubernetes.io/unschedulable", "effect": "NoSchedule"}

_REQUIRED, _PREFERRED = (f"{each}DuringSchedulingIgnoredDuringExecution" for each in ("required", "preferred"))


def running_pod(chance: Chance, name: str, node: str) -> Manifest:
    """Return a pod that runs on a node, or, rarely, has finished there or is being deleted."""
    pod = _pod(chance, name)
    pod["spec"]["nodeName"] = node
    if chance.maybe(0.1):
        pod["metadata"]["deletionTimestamp"] = "2026-01-01T00:00:00Z"
    pod["status"] = {"phase": chance.choice(("Running",) * 8 + ("Pending", "Succeeded", "Failed"))}
    if chance.maybe(0.1):
        resources = {"requests": _amounts(chance)}
        pod["status"]["containerStatuses"] = [{"name": "main", "resources": resources}]
    affinity = {
        "podAntiAffinity": {_REQUIRED: _pod_terms(chance, pod, 0.1), _PREFERRED: _weighted(chance, pod, 0.15)},
        "podAffinity": {_REQUIRED: _pod_terms(chance, pod, 0.1), _PREFERRED: _weighted(chance, pod, 0.15)},
    }
    pod["spec"]["affinity"] = affinity
    return pod


def pending_pod(chance: Chance, nodes: Sequence[str]) -> Manifest:
    """Return a pod that waits for a node; many have no requirements, so that only their volumes decide."""
    pod = _pod(chance, "pending")
    spec = pod["spec"]
    if chance.maybe(0.3):
        return pod
    if chance.maybe(0.1):
        spec["nodeSelector"] = selectors.node_selector(chance)
    spec["tolerations"] = _tolerations(chance)
    spec["affinity"] = {
        "podAffinity": {_REQUIRED: _pod_terms(chance, pod, 0.1), _PREFERRED: _weighted(chance, pod, 0.25)},
        "podAntiAffinity": {_REQUIRED: _pod_terms(chance, pod, 0.2), _PREFERRED: _weighted(chance, pod, 0.25)},
    }
    node_affinity: Manifest = {}
    if chance.maybe(0.15):
        terms = [selectors.node_term(chance, nodes) for _ in range(chance.randint(1, 2))]
        node_affinity[_REQUIRED] = {"nodeSelectorTerms": terms}
    if chance.maybe(0.3):
        node_affinity[_PREFERRED] = [
            {"weight": chance.randint(1, 100), "preference": selectors.node_term(chance, nodes)}
            for _ in range(chance.randint(1, 3))
        ]
    if node_affinity:
        spec["affinity"]["nodeAffinity"] = node_affinity
    spec["topologySpreadConstraints"] = _spread_constraints(chance, pod)
    return pod


def _pod(chance: Chance, name: str) -> Manifest:
    """Return a pod with labels, resources and host ports only."""
    meta = {
        "name": name,
        "namespace": chance.choice(("default", "default", *NAMESPACES)),
        "uid": f"uid-{name}",
        "labels": selectors.pod_labels(chance),
    }
    spec: Manifest = {"containers": [_container(chance, "main")]}
    if chance.maybe(0.3):
        spec["containers"].append(_container(chance, "second"))
    if chance.maybe(0.2):
        spec["initContainers"] = [_container(chance, "init"), _container(chance, "last")]
        if chance.maybe(0.5):
            spec["initContainers"][chance.randint(0, 1)]["restartPolicy"] = "Always"
    if chance.maybe(0.1):
        spec["overhead"] = {"cpu": "250m", "memory": "64Mi"}
    if chance.maybe(0.05):
        spec["resources"] = {"requests": {"cpu": chance.choice(("6", "7500m")), "memory": "20Gi"}}
    return {"metadata": meta, "spec": spec}


def _container(chance: Chance, name: str) -> Manifest:
    container: Manifest = {"name": name, "image": chance.choice(IMAGES)}
    if chance.maybe(0.8):
        container["resources"] = {"requests": _amounts(chance)}
    elif chance.maybe(0.5):
        container["resources"] = {"limits": _amounts(chance)}
    if chance.maybe(0.15):
        port: Manifest = {"containerPort": 80, "hostPort": chance.choice((8080, 8080, 9090))}
        if chance.maybe(0.3):
            port["protocol"] = chance.choice(("UDP", "SCTP"))
        if chance.maybe(0.3):
            port["hostIP"] = chance.choice(("127.0.0.1", "10.0.0.1", "0.0.0.0"))  # noqa: S104 -- a manifest
        container["ports"] = [port]
    return container


def _amounts(chance: Chance) -> dict[str, str]:
    amounts = {"cpu": chance.choice(("0", "100m", "1", "1500m", "2")), "memory": chance.choice(("128Mi", "1G", "3Gi"))}
    if chance.maybe(0.07):
        amounts["ephemeral-storage"] = chance.choice(("1Gi", "30Gi"))
    if chance.maybe(0.07):
        amounts["example.com/fpga"] = "1"
    return amounts


def _tolerations(chance: Chance) -> list[Manifest]:
    tolerations: list[Manifest] = []
    if chance.maybe(0.1):
        tolerations.append({"operator": "Exists"})
    for taint in (*TAINTS, CORDON):
        if chance.maybe(0.25):
            operator: Manifest = {"operator": "Exists"} if chance.maybe(0.3) else {"value": taint.get("value", "")}
            effect = {"effect": chance.choice((taint["effect"], "NoSchedule"))} if chance.maybe(0.5) else {}
            tolerations.append({"key": taint["key"], **operator, **effect})
    return tolerations


def _pod_terms(chance: Chance, pod: Manifest, probability: float) -> list[Manifest]:
    if not chance.maybe(probability):
        return []
    return [_pod_term(chance, pod) for _ in range(chance.choice((1, 1, 2)))]


def _weighted(chance: Chance, pod: Manifest, probability: float) -> list[Manifest]:
    return [
        {"weight": chance.randint(1, 100), "podAffinityTerm": term} for term in _pod_terms(chance, pod, probability)
    ]


def _pod_term(chance: Chance, pod: Manifest) -> Manifest:
    """Return a term; the API server has merged matchLabelKeys and mismatchLabelKeys into its selector."""
    term: Manifest = {"topologyKey": chance.choice(TOPOLOGY_KEYS), "labelSelector": selectors.label_selector(chance)}
    if chance.maybe(0.2):
        term["namespaces"] = chance.sample(list(NAMESPACES), chance.randint(1, 2))
    selector = selectors.namespace_selector(chance)
    if selector is not None:
        term["namespaceSelector"] = selector
    labels = pod["metadata"]["labels"]
    if term["labelSelector"] is not None and "version" in labels and chance.maybe(0.15):
        field, operator = chance.choice((("matchLabelKeys", "In"), ("mismatchLabelKeys", "NotIn")))
        term[field] = ["version"]
        merged = {"key": "version", "operator": operator, "values": [labels["version"]]}
        term["labelSelector"].setdefault("matchExpressions", []).append(merged)
    return term


def _spread_constraints(chance: Chance, pod: Manifest) -> list[Manifest]:
    """Return constraints, of which no two have the same topology key and effect."""
    constraints: dict[tuple[str, str], Manifest] = {}
    for _ in range(chance.choice((0, 0, 0, 1, 1, 2, 3))):
        constraint: Manifest = {
            "topologyKey": chance.choice(TOPOLOGY_KEYS),
            "maxSkew": chance.randint(1, 3),
            "whenUnsatisfiable": chance.choice(("DoNotSchedule", "ScheduleAnyway")),
            "labelSelector": selectors.label_selector(chance),
        }
        if constraint["whenUnsatisfiable"] == "DoNotSchedule" and chance.maybe(0.2):
            constraint["minDomains"] = chance.randint(1, 4)
        if constraint["labelSelector"] is not None and chance.maybe(0.2):
            constraint["matchLabelKeys"] = ["version"]
        for field in ("nodeAffinityPolicy", "nodeTaintsPolicy"):
            if chance.maybe(0.3):
                constraint[field] = chance.choice(("Honor", "Ignore"))
        constraints[constraint["topologyKey"], constraint["whenUnsatisfiable"]] = constraint
    return list(constraints.values())
