"""The GPU variables of a pod's containers as the kubelet resolves them."""

import re
from typing import Final

import msgspec

from allocation import environment
from cli import objects
from cli.objects import Pod, PodContainer
from cli.tables import Table

_ANNOTATION: Final = re.compile(r"metadata\.annotations\['(?P<key>[^']+)'\]")


class Variable(msgspec.Struct, frozen=True):
    """One variable; `annotation` is the key that it refers to, empty where its value stands in the pod."""

    name: str
    value: str
    annotation: str


class ContainerEnvironment(msgspec.Struct, frozen=True):
    """The variables of ours that a container has, in the order of the pod's spec."""

    name: str
    variables: tuple[Variable, ...]


class PodEnvironment(msgspec.Struct, frozen=True):
    """What `kubectl gpu env -o json` prints: `node` is empty before the pod is placed."""

    namespace: str
    pod: str
    node: str
    containers: tuple[ContainerEnvironment, ...]

    @property
    def refers(self) -> bool:
        """Whether any variable refers to an annotation, which is what makes a pod a managed one."""
        return any(variable.annotation for container in self.containers for variable in container.variables)

    @property
    def resolved(self) -> bool:
        """Whether any reference has a value."""
        return any(
            variable.value for container in self.containers for variable in container.variables if variable.annotation
        )

    def only(self, container: str) -> "PodEnvironment":
        """Answer the same of one container."""
        chosen = tuple(known for known in self.containers if known.name == container)
        return PodEnvironment(self.namespace, self.pod, self.node, chosen)

    def table(self, *, wide: bool = False) -> Table:
        """Answer a line for each variable; the wide table says which annotation it refers to."""
        rows = [
            (container.name, variable.name, variable.value, *((variable.annotation,) if wide else ()))
            for container in self.containers
            for variable in container.variables
        ]
        return Table(("CONTAINER", "VARIABLE", "VALUE", *(("ANNOTATION",) if wide else ())), rows)


def of_pod(pod: Pod) -> PodEnvironment:
    """Answer the variables of every container, init containers first."""
    return PodEnvironment(
        namespace=pod.metadata.namespace,
        pod=pod.metadata.name,
        node=pod.spec.node_name,
        containers=tuple(
            ContainerEnvironment(container.name, _variables(container, pod.metadata.annotations))
            for container in (*pod.spec.init_containers, *pod.spec.containers)
        ),
    )


def _variables(container: PodContainer, annotations: dict[str, str]) -> tuple[Variable, ...]:
    """List the variables; of two with one name the kubelet takes the later."""
    found: dict[str, Variable] = {}
    for entry in container.env:
        if environment.is_owned(entry.name):
            key = _annotation(entry)
            value = environment.resolve({entry.name: key}, annotations)[entry.name] if key else entry.value
            found[entry.name] = Variable(entry.name, value, key)
    return tuple(found.values())


def _annotation(entry: objects.Variable) -> str:
    """Answer the annotation key that `entry` refers to, empty where it refers to none."""
    if entry.value_from is None or entry.value_from.field_ref is None:
        return ""
    match = _ANNOTATION.fullmatch(entry.value_from.field_ref.field_path)
    return match["key"] if match else ""
