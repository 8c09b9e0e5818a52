"""The pods that a command line names: one pod, or all pods of a workload, such as `deploy/web`."""

from typing import Final, TypeVar

import msgspec

from cli.errors import CommandError
from cli.kube.session import Session
from cluster.resource import PODS, Resource

P = TypeVar("P")

_WORKLOADS: Final = {
    word: resource
    for words, resource in (
        (("deploy", "deployment", "deployments"), Resource("apps", "v1", "deployments", "Deployment")),
        (("sts", "statefulset", "statefulsets"), Resource("apps", "v1", "statefulsets", "StatefulSet")),
        (("ds", "daemonset", "daemonsets"), Resource("apps", "v1", "daemonsets", "DaemonSet")),
        (("rs", "replicaset", "replicasets"), Resource("apps", "v1", "replicasets", "ReplicaSet")),
        (("job", "jobs"), Resource("batch", "v1", "jobs", "Job")),
    )
    for word in words
}
_PODS: Final = ("po", "pod", "pods")


class _Requirement(msgspec.Struct):
    key: str
    operator: str
    values: list[str] = []

    def __str__(self) -> str:
        """Return the syntax of a request's labelSelector."""
        values = ",".join(self.values)
        return {
            "In": f"{self.key} in ({values})",
            "NotIn": f"{self.key} notin ({values})",
            "Exists": self.key,
            "DoesNotExist": f"!{self.key}",
        }[self.operator]


class _Selector(msgspec.Struct, rename="camel"):
    match_labels: dict[str, str] = {}
    match_expressions: list[_Requirement] = []

    def __str__(self) -> str:
        """Return the syntax of a request's labelSelector."""
        labels = (f"{key}={value}" for key, value in self.match_labels.items())
        return ",".join([*labels, *map(str, self.match_expressions)])


class _Spec(msgspec.Struct):
    selector: _Selector | None = None


class _Workload(msgspec.Struct):
    spec: _Spec


def pods_of(session: Session, word: str, pod: type[P]) -> list[P]:
    """Return the pods that `word` names, decoded as `pod`: `NAME`, `pod/NAME`, or a workload such as `deploy/NAME`.

    Raises:
        CommandError: the object does not exist, the workload has no pods, or the kind is not one that has pods.
    """
    kind, slash, name = word.rpartition("/")
    if not slash or kind in _PODS:
        return [session.get(PODS, pod, name)]
    resource = _WORKLOADS.get(kind)
    if resource is None:
        raise CommandError(f"{word}: {kind} is not a kind with pods; the kinds are pod, {', '.join(_WORKLOADS)}")
    selector = str(session.get(resource, _Workload, name).spec.selector or "")
    pods = session.client.list(PODS, pod, namespace=session.namespace, label_selector=selector) if selector else []
    if not pods:
        label = f"{resource.kind.lower()} {session.namespace}/{name}"
        raise CommandError(f"{label} has no pods; see 'kubectl describe -n {session.namespace} {word}'")
    return sorted(pods, key=str)


def is_workload(word: str) -> bool:
    """Whether `pods_of` would look for the pods of a workload."""
    kind, slash, _ = word.rpartition("/")
    return bool(slash) and kind not in _PODS
