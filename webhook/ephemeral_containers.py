"""Ephemeral containers (`kubectl debug`): the pod's GPUs are already allocated, so an added container sees none.

Which pods this concerns is read from fields of the spec that never change; the label that opted a pod in may have been
removed since.
"""

from allocation import names
from webhook import environment, security
from webhook.mutation import Mutation
from webhook.patch import Operation, pointer
from webhook.review import EnvironmentEntry, ForbiddenPodError, Pod, PodContainer


def mutate(pod: Pod, *, old_pod: Pod) -> Mutation:
    """Return the mutation of the ephemeral containers that `pod` has and `old_pod` does not.

    Raises:
        ForbiddenPodError: an added container could reach every card of its node.
    """
    if not is_managed(pod):
        return Mutation()
    old_names = {container.name for container in old_pod.spec.ephemeral_containers}
    operations: list[Operation] = []
    warnings: list[str] = []
    for position, container in enumerate(pod.spec.ephemeral_containers):
        if container.name in old_names:
            continue
        _check_security(container)
        at = pointer("spec", "ephemeralContainers", position)
        changes, notes = environment.changes(container, at=at, cards=0, wanted=environment.hidden_gpu_entries())
        operations += changes
        warnings += notes
    return Mutation(tuple(operations), tuple(warnings))


def is_managed(pod: Pod) -> bool:
    """Whether admission prepared `pod`: our scheduler places it, or its environment reads what our scheduler writes."""
    return pod.spec.scheduler_name in names.SCHEDULER_NAMES or any(
        f".{names.ENVIRONMENT_DOMAIN}/" in _field_path(entry)
        for container in (*pod.spec.init_containers, *pod.spec.containers)
        for entry in container.env or ()
    )


def _check_security(container: PodContainer) -> None:
    if breach := security.breach(container):
        raise ForbiddenPodError(
            f"container {container.name} {breach} and so sees all GPUs of its node: use a kubectl debug profile other"
            " than sysadmin, or debug the node itself"
        )


def _field_path(entry: EnvironmentEntry) -> str:
    source = entry.get("valueFrom") or {}
    return str((source.get("fieldRef") or {}).get("fieldPath", ""))
