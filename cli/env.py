"""`kubectl gpu env`: the GPU variables of a pod's containers, as the kubelet resolves them."""

import argparse
import re
from typing import Final

import msgspec

from allocation import fabric, variables
from allocation.names import CLAIM
from allocation.wire import environment
from cli.errors import CommandError
from cli.kube import objects
from cli.kube.objects import Pod, PodContainer
from cli.kube.pods_of import is_workload, pods_of
from cli.kube.session import Session
from cli.tables import Table, note, render

_ANNOTATION: Final = re.compile(r"metadata\.annotations\['(?P<key>[^']+)'\]")


class Variable(msgspec.Struct, frozen=True):
    """One variable; `annotation` is the key that it refers to, or empty if the pod's spec has the value."""

    name: str
    value: str
    annotation: str


class ContainerEnvironment(msgspec.Struct, frozen=True):
    """The GPU variables of a container, in the order of the pod's spec."""

    name: str
    variables: tuple[Variable, ...]


class PodEnvironment(msgspec.Struct, frozen=True):
    """What `kubectl gpu env -o json` prints.

    Attributes:
        namespace: the namespace of the pod.
        pod: the name of the pod.
        node: its node; empty before the pod is placed.
        containers: all containers, init containers first.
        claim: the GpuClaim that gives the pod its cards, the same to each GPU container; empty without one.
    """

    namespace: str
    pod: str
    node: str
    containers: tuple[ContainerEnvironment, ...]
    claim: str = ""

    @property
    def is_managed(self) -> bool:
        """Whether any variable refers to an annotation, which only admission makes it do."""
        return any(variable.annotation for container in self.containers for variable in container.variables)

    @property
    def is_resolved(self) -> bool:
        """Whether any reference has a value."""
        return any(
            variable.value for container in self.containers for variable in container.variables if variable.annotation
        )

    def only(self, name: str) -> "PodEnvironment":
        """Return the same pod with one container."""
        containers = tuple(container for container in self.containers if container.name == name)
        return msgspec.structs.replace(self, containers=containers)

    def table(self, *, wide: bool = False) -> Table:
        """Return a row for each variable; the wide table has the annotation that the variable refers to."""
        rows = [
            (container.name, variable.name, variable.value, *((variable.annotation,) if wide else ()))
            for container in self.containers
            for variable in container.variables
        ]
        return Table(("CONTAINER", "VARIABLE", "VALUE", *(("ANNOTATION",) if wide else ())), rows)


class PodEnvironments(msgspec.Struct, frozen=True):
    """What `kubectl gpu env deploy/NAME -o json` prints."""

    items: tuple[PodEnvironment, ...]

    def table(self, *, wide: bool = False) -> Table:
        """Return the rows of each pod, behind its name."""
        tables = [(each.pod, each.table(wide=wide)) for each in self.items]
        return Table(("POD", *tables[0][1].headers), [(pod, *row) for pod, table in tables for row in table.rows])


def run(session: Session, arguments: argparse.Namespace) -> int:
    """Print the variables of a pod or of the pods of a workload, or of one of their containers."""
    pods = tuple(_chosen(of_pod(pod), arguments.container) for pod in pods_of(session, arguments.pod, Pod))
    shown = PodEnvironments(pods) if is_workload(arguments.pod) else pods[0]
    table = shown.table(wide=arguments.output == "wide")
    print(render(shown, table, output=arguments.output, headers=not arguments.no_headers), end="")
    return 0


def _chosen(shown: PodEnvironment, container_name: str) -> PodEnvironment:
    """Return what is shown of a pod: all containers, or the one with this name.

    Raises:
        CommandError: the pod has no such container, or no GPU variables.
    """
    label = f"pod {shown.namespace}/{shown.pod}"
    if container_name and not any(container.name == container_name for container in shown.containers):
        names = ", ".join(container.name for container in shown.containers)
        raise CommandError(f"{label} has no container {container_name}; it has {names}")
    if not shown.is_managed:
        raise CommandError(
            f"{label} has no GPU variables from Tranche: it requests no GPU, or injection was off when it was created; "
            "label the namespace gpu.scheduling/injection=enabled and recreate the pod"
        )
    _note_unresolved(shown, label)
    return shown.only(container_name) if container_name else shown


def of_pod(pod: Pod) -> PodEnvironment:
    """Return the variables of every container, init containers first."""
    return PodEnvironment(
        namespace=pod.metadata.namespace,
        pod=pod.metadata.name,
        node=pod.spec.node_name,
        containers=tuple(
            ContainerEnvironment(container.name, _variables(container, pod.metadata.annotations))
            for container in (*pod.spec.init_containers, *pod.spec.containers)
        ),
        claim=pod.metadata.annotations.get(CLAIM, ""),
    )


def _variables(container: PodContainer, annotations: dict[str, str]) -> tuple[Variable, ...]:
    """Return the GPU variables; of two entries with the same name the kubelet uses the later one."""
    by_name: dict[str, Variable] = {}
    for entry in container.env:
        if variables.is_owned(entry.name) or entry.name in fabric.VARIABLES:
            key = _annotation(entry)
            value = environment.resolve({entry.name: key}, annotations)[entry.name] if key else entry.value
            by_name[entry.name] = Variable(entry.name, value, key)
    return tuple(by_name.values())


def _annotation(entry: objects.Variable) -> str:
    """Return the annotation key that `entry` refers to, or an empty string."""
    if entry.value_from is None or entry.value_from.field_ref is None:
        return ""
    match = _ANNOTATION.fullmatch(entry.value_from.field_ref.field_path)
    return match["key"] if match else ""


def _note_unresolved(shown: PodEnvironment, label: str) -> None:
    """Note why the variables are empty, if they are."""
    if shown.is_resolved:
        return
    if shown.node:
        note(f"{label} was bound to node {shown.node} without an allocation and sees no GPU; recreate it")
    else:
        command = f"kubectl describe pod -n {shown.namespace} {shown.pod}"
        note(f"{label} has not been placed yet, so its variables are empty; see '{command}'")
