"""`kubectl gpu resize`: wish another size for a running pod, and wait until the scheduler has carried it out."""

import argparse
import time
from typing import Final

import msgspec

from allocation.allocation import Allocation
from allocation.burst import ContainerLimits
from allocation.errors import AllocationError
from allocation.names import RESIZE, RESIZED
from allocation.request import MILLI_PER_PERCENT
from allocation.wire import record, resize_record
from allocation.wire.resize_record import Size
from cli.errors import CommandError, UsageError
from cli.kube.objects import Pod
from cli.kube.scheduler_api import SchedulerApi
from cli.kube.session import Session
from cli.tables import Table, render
from cluster.errors import ConflictError, NotFoundError
from cluster.resource import PODS
from scheduler.api.adjustment_types import AdjustmentAnswer

_ATTEMPTS: Final = 10
_POLL_SECONDS: Final = 0.3


_JSON_NAMES: Final = {"memory_mib": "memoryMiB", "memory_limit_mib": "memoryLimitMiB", "cores_limit": "coresLimit"}


class ContainerSize(msgspec.Struct, frozen=True, rename=_JSON_NAMES):
    """What a container has of each of its cards.

    Attributes:
        name: the container.
        memory_mib: MiB.
        cores: thousandths of a card.
        memory_limit_mib: the most that it may use, if that is more than it has; else 0. The same of `cores_limit`.
    """

    name: str
    memory_mib: int
    cores: int
    memory_limit_mib: int = 0
    cores_limit: int = 0


class ResizedPod(msgspec.Struct, frozen=True):
    """What `-o json` and `-o yaml` print.

    Attributes:
        namespace: the pod's namespace.
        pod: its name.
        containers: its containers with cards.
        pending: whether a container may still have what it had before.
    """

    namespace: str
    pod: str
    containers: tuple[ContainerSize, ...]
    pending: bool


def run(session: Session, arguments: argparse.Namespace) -> int:
    """Write the wish and wait; with `--dry-run` print what the scheduler answers instead."""
    size = _size(arguments)
    pod = session.get(PODS, Pod, arguments.pod)
    container = _container(pod, arguments.container)
    if arguments.dry_run:
        api = SchedulerApi(session.access, url=arguments.scheduler_url)
        return _answer(api.adjust(session.namespace, arguments.pod, {container: size}), arguments)
    before = _write(session, arguments.pod, container, size)
    return _wait(session, arguments, before, container, size)


def _size(arguments: argparse.Namespace) -> Size:
    """Return the size of the command line."""
    limits = ContainerLimits(arguments.memory_limit, arguments.cores_limit)
    size = Size(arguments.memory, arguments.cores, limits if limits != ContainerLimits() else None)
    if size == Size():
        raise UsageError("name a size: --memory, --cores, or their limits")
    try:
        resize_record.decode_wish(resize_record.encode_wish({"main": size}))
    except AllocationError:
        raise UsageError(
            "--memory must be at least 1, and --cores from 0 to 100 (percent of each card); so must their limits, but"
            " not 0"
        ) from None
    return size


def _allocation(pod: Pod) -> Allocation:
    try:
        found = record.of_annotations(pod.metadata.annotations)
    except AllocationError as error:
        raise CommandError(f"pod {pod}: {error}") from None
    if found is None or not pod.spec.node_name:
        raise CommandError(f"pod {pod} has no cards yet, so it has no size: see 'kubectl gpu explain'")
    return found


def _container(pod: Pod, name: str) -> str:
    """Return the container of this name, or the only one of a pod that has cards."""
    containers = tuple(_allocation(pod).containers)
    if name and name not in containers:
        raise CommandError(f"pod {pod}: container {name} has no cards: those with cards are {', '.join(containers)}")
    if name:
        return name
    if len(containers) != 1:
        raise CommandError(f"pod {pod}: containers {', '.join(containers)} have cards: name one with -c")
    return containers[0]


def _write(session: Session, name: str, container: str, size: Size) -> Allocation:
    """Write the wish, and return what the pod has before; what is wished for other containers stays."""
    for _ in range(_ATTEMPTS):
        pod = session.get(PODS, Pod, name)
        try:
            wish = resize_record.decode_wish(pod.metadata.annotations.get(RESIZE, "{}"))
        except AllocationError:
            wish = {}  # it cannot be carried out, and is replaced
        before = wish.get(container, Size())
        wish[container] = Size(
            before.gpumem if size.gpumem is None else size.gpumem,
            before.gpucores if size.gpucores is None else size.gpucores,
            _merged(before.limits, size.limits),
        )
        try:
            session.client.annotate(
                PODS,
                name=name,
                namespace=session.namespace,
                version=pod.metadata.resource_version,
                annotations={RESIZE: resize_record.encode_wish(wish)},
                dry_run=False,
            )
        except ConflictError:
            continue
        except NotFoundError:
            raise CommandError(f"pod {session.namespace}/{name} was deleted meanwhile") from None
        return _allocation(pod)
    raise CommandError(
        f"annotation {RESIZE} of pod {session.namespace}/{name} was not written: others changed the pod during each of"
        f" {_ATTEMPTS} attempts; try again"
    )


def _merged(before: ContainerLimits | None, wished: ContainerLimits | None) -> ContainerLimits | None:
    """Return the limits that are wished, and those from before of which nothing is said."""
    if before is None or wished is None:
        return wished or before
    return ContainerLimits(
        before.gpumem if wished.gpumem is None else wished.gpumem,
        before.gpucores if wished.gpucores is None else wished.gpucores,
    )


def _wait(session: Session, arguments: argparse.Namespace, before: Allocation, container: str, size: Size) -> int:
    """Wait until the pod has the size, and print what it has."""
    deadline = time.monotonic() + arguments.timeout
    while not _has(now := _allocation(pod := session.get(PODS, Pod, arguments.pod)), container, size) and now == before:
        if time.monotonic() >= deadline:
            raise CommandError(
                f"pod {pod} does not have the size yet: see 'kubectl events -n {session.namespace} --for"
                f" pod/{arguments.pod}'; without events the scheduler does not resize pods (docs/resize.md). The wish"
                f" stays; 'kubectl annotate -n {session.namespace} pod {arguments.pod} {RESIZE}-' withdraws it"
            )
        time.sleep(_POLL_SECONDS)
    _print(pod, arguments)
    return 0


def _has(allocation: Allocation, container: str, size: Size) -> bool:
    """Whether a container has a size."""
    limits = size.limits or ContainerLimits()
    return all(
        (size.gpumem is None or share.memory_mib == size.gpumem)
        and (size.gpucores is None or share.cores == size.gpucores * MILLI_PER_PERCENT)
        and (limits.gpumem is None or share.at_limits().memory_mib == limits.gpumem)
        and (limits.gpucores is None or share.at_limits().cores == limits.gpucores * MILLI_PER_PERCENT)
        for share in allocation.containers.get(container, ())
    )


def _print(pod: Pod, arguments: argparse.Namespace) -> None:
    if arguments.output == "name":
        print(f"pod/{pod.metadata.name}")
        return
    containers = tuple(
        ContainerSize(name, shares[0].memory_mib, shares[0].cores, shares[0].memory_limit_mib, shares[0].cores_limit)
        for name, shares in _allocation(pod).containers.items()
    )
    pending = RESIZED in pod.metadata.annotations
    shown = ResizedPod(pod.metadata.namespace, pod.metadata.name, containers, pending)
    effect = "at its next start" if pending else "now"
    rows = [
        (
            str(pod),
            each.name,
            f"{_range(each.memory_mib, each.memory_limit_mib)} MiB",
            f"{_range(each.cores / MILLI_PER_PERCENT, each.cores_limit / MILLI_PER_PERCENT)} %",
            effect,
        )
        for each in containers
    ]
    table = Table(("POD", "CONTAINER", "MEMORY", "CORES", "IN EFFECT"), rows)
    print(render(shown, table, output=arguments.output, headers=not arguments.no_headers), end="")


def _range(amount: float, limit: float) -> str:
    """Return an amount, and after a dash the most if that is more."""
    return f"{amount:.15g}-{limit:.15g}" if limit else f"{amount:.15g}"


def _answer(answer: AdjustmentAnswer, arguments: argparse.Namespace) -> int:
    """Print what the scheduler answers; return 1 if the size does not fit."""
    if arguments.output == "name":
        print(f"pod/{arguments.pod}" if answer.fits else "", end="\n" * answer.fits)
        return 0 if answer.fits else 1
    rows = [
        (uuid, f"{left.memory_mib} MiB", f"{left.cores / MILLI_PER_PERCENT:g} %")
        for uuid, left in answer.remaining.items()
    ]
    heads = ("CARD", "MEMORY LEFT" if answer.fits else "MEMORY LEFT NOW", "CORES LEFT" if answer.fits else "LEFT NOW")
    if rows or arguments.output in ("json", "yaml"):
        text = render(answer, Table(heads, rows), output=arguments.output, headers=not arguments.no_headers)
        print(text, end="")
    if not answer.fits:
        raise CommandError(f"pod {arguments.pod}: {answer.reason}: {answer.message}")
    return 0
