"""Containers that are added to a running pod (`kubectl debug`): they were not there when its cards were decided.

So they see none. Which pods that concerns is read from fields of the spec that never change; a label that opted the
pod in may have been taken away since.
"""

from collections.abc import Iterator

from allocation import names
from webhook import environment
from webhook.mutation import Mutation
from webhook.patch import Operation, pointer
from webhook.refusal import RefusedError
from webhook.review import EnvironmentEntry, Pod, PodContainer


def mutate(pod: Pod, *, before: Pod) -> Mutation:
    """Answer what admission makes of the containers that `pod` has and the pod `before` the request had not.

    Raises:
        RefusedError: one is privileged.
    """
    if not is_managed(pod):
        return Mutation()
    warnings: list[str] = []
    return Mutation(operations=tuple(_operations(pod, before, warnings)), warnings=tuple(warnings))


def is_managed(pod: Pod) -> bool:
    """Whether admission prepared `pod`: it is our scheduler's, or its environment reads what our scheduler writes."""
    return pod.spec.scheduler_name == names.SCHEDULER_NAME or any(
        f".{names.ENVIRONMENT_DOMAIN}/" in _field_path(entry)
        for container in (*pod.spec.init_containers, *pod.spec.containers)
        for entry in container.env or ()
    )


def _operations(pod: Pod, before: Pod, warnings: list[str]) -> Iterator[Operation]:
    known = {container.name for container in before.spec.ephemeral_containers}
    for position, container in enumerate(pod.spec.ephemeral_containers):
        if container.name in known:
            continue
        _check_security(container)
        yield from environment.operations(
            container,
            at=pointer("spec", "ephemeralContainers", position),
            wanted=environment.blind_entries(),
            warn=warnings.append,
        )


def _check_security(container: PodContainer) -> None:
    if container.security_context is not None and container.security_context.privileged:
        raise RefusedError(
            f"container {container.name} is privileged and so sees all GPUs of its node: use another profile of kubectl"
            " debug than sysadmin, or debug the node itself"
        )


def _field_path(entry: EnvironmentEntry) -> str:
    source = entry.get("valueFrom") or {}
    return str((source.get("fieldRef") or {}).get("fieldPath", ""))
