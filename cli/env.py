"""`kubectl gpu env`: the GPU variables of containers, as the kubelet resolves them, and what enforces their limits."""

import argparse
import re
from collections.abc import Iterator, Mapping
from typing import Final

import msgspec

from allocation import fabric, variables
from allocation.errors import AllocationError
from allocation.isolation import Isolation
from allocation.names import CLAIM, HAMI_BIND_PHASE, ISOLATION, REQUIRED_PLUGINS
from allocation.request import MILLI_PER_PERCENT
from allocation.wire import environment, record
from cli.errors import CommandError
from cli.kube import objects
from cli.kube.objects import Pod, PodContainer
from cli.kube.pods_of import is_workload, pods_of
from cli.kube.session import Session
from cli.tables import Table, note, render

_ENFORCEMENT: Final[Mapping[str, str]] = {
    Isolation.NONE: "nothing enforces the limits, they are only counted",
    Isolation.HAMI_CORE: "HAMi-core enforces the limits, in each process that loads it",
    Isolation.MPS: "the MPS daemon of the node enforces the limits, of each process that is its client",
    Isolation.MIG: "each MIG instance is a limit by itself",
    Isolation.CUDA: "the driver enforces the memory of each container, and nothing its compute",
}
_BY_PLUGIN: Final = "HAMi's device plugin loads HAMi-core, which enforces the limits in each process"
_BY_AGENT: Final[Mapping[str, str]] = {
    Isolation.HAMI_CORE: "HAMi-core enforces the limits, in each process, into which the node's agent loads it",
}
_BY_FRACTIONS: Final = "kai-gpu-fractioning enforces the memory of each container, and newer versions its compute"
_UNKNOWN: Final = "not known to this version of kubectl gpu"
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
        limits: by container that may use more than is reserved for it, both as a sentence.
        isolation: what the pod chose to enforce its limits, as its annotation says; `none` without one.
        enforcement: what enforces its limits, in words.
    """

    namespace: str
    pod: str
    node: str
    containers: tuple[ContainerEnvironment, ...]
    claim: str = ""
    limits: tuple[str, ...] = ()
    isolation: str = Isolation.NONE.value
    enforcement: str = ""

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
    if arguments.output not in ("json", "yaml"):
        for isolation, enforcement in dict.fromkeys((pod.isolation, pod.enforcement) for pod in pods):
            note(f"isolation {isolation}: {enforcement}")
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
    for limit in shown.limits:
        note(f"{label}: {limit}")
    return shown.only(container_name) if container_name else shown


def of_pod(pod: Pod) -> PodEnvironment:
    """Return the variables of every container, init containers first."""
    isolation = pod.metadata.annotations.get(ISOLATION, Isolation.NONE.value)
    if isolation not in _ENFORCEMENT:  # admission did not see it, so it may be any text
        isolation = "unknown"
    return PodEnvironment(
        namespace=pod.metadata.namespace,
        pod=pod.metadata.name,
        node=pod.spec.node_name,
        containers=tuple(
            ContainerEnvironment(container.name, _variables(container, pod.metadata.annotations))
            for container in (*pod.spec.init_containers, *pod.spec.containers)
        ),
        claim=pod.metadata.annotations.get(CLAIM, ""),
        limits=tuple(_limits(pod.metadata.annotations)),
        isolation=isolation,
        enforcement=_enforcement(isolation, pod.metadata.annotations),
    )


def _enforcement(isolation: str, annotations: Mapping[str, str]) -> str:
    if HAMI_BIND_PHASE in annotations:
        return _BY_PLUGIN
    if environment.has_fractions(annotations):
        return _BY_FRACTIONS
    by_agent = _BY_AGENT if REQUIRED_PLUGINS in annotations else {}
    return by_agent.get(isolation) or _ENFORCEMENT.get(isolation, _UNKNOWN)


def _limits(annotations: dict[str, str]) -> Iterator[str]:
    """Yield what each container has for certain, and what it may use beyond that."""
    try:
        allocation = record.of_annotations(annotations)
    except AllocationError:
        return
    for name, shares in allocation.containers.items() if allocation is not None else ():
        for share in shares[:1]:  # a container has the same of each of its cards
            most = share.at_limits()
            if most is not share:
                yield (
                    f"container {name} has {share.memory_mib} MiB and {share.cores / MILLI_PER_PERCENT:g} % of each"
                    f" card reserved, and may use up to {most.memory_mib} MiB and {most.cores / MILLI_PER_PERCENT:g} %"
                )


def _variables(container: PodContainer, annotations: dict[str, str]) -> tuple[Variable, ...]:
    """Return the GPU variables; of two entries with the same name the kubelet uses the later one."""
    by_name: dict[str, Variable] = {}
    for entry in container.env:
        if variables.is_owned(entry.name) or entry.name in fabric.VARIABLES:
            key = _annotation(entry)
            value = environment.resolve({entry.name: key}, annotations)[entry.name] if key else entry.value
            by_name[entry.name] = Variable(entry.name, value, key)
    if any(each.annotation for each in by_name.values()):  # other schedulers write the same annotations
        keys = environment.fraction_references(container.name)
        for name, value in environment.fraction_variables(annotations, container.name).items():
            by_name[name] = Variable(name, value, keys[name])
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
