"""`kubectl gpu bindings`: the cards that belong to applications, the pods that have them, and what is wrong."""

import argparse
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping
from datetime import datetime
from typing import Final

from allocation.bindings import binding
from allocation.bindings import problems as single
from allocation.bindings.binding import AppIdentity, Binding
from allocation.errors import AllocationError
from allocation.settings import AllocationSettings
from cli.bindings import problems
from cli.bindings.report import BindingsReport, CardBinding, KnownCard, Problem
from cli.errors import CommandError
from cli.installation import rules
from cli.kube import own_kinds
from cli.kube.objects import Pod
from cli.kube.session import Session
from cli.tables import NOTHING, Table, age, listed, note, render
from cli.top import fleet_reader, usage_counter
from cli.top.usage_counter import FleetObjects
from cluster.resource import GPU_BINDINGS
from scheduler.state.running_allocation import running_allocation

Holders = Mapping[str, Iterable[tuple[AppIdentity, str]]]
"""By UUID of the card: the live pods that have it, with the application of each."""
_UNKNOWN: Final = "-"
_PODS_SHOWN: Final = 2
_NAMES_SHOWN: Final = 3
_PROBLEMS_SHOWN: Final = 10


def run(session: Session, arguments: argparse.Namespace) -> int:
    """Print the bindings of an application, of a user or of a namespace, or all."""
    bindings = own_kinds.gpu_bindings(session.client)
    effective_rules = rules.read(arguments.config, session.client)
    effective_rules.note_gaps()
    objects = fleet_reader.read(session)
    report = of_objects(bindings, objects, effective_rules.allocation).concerning(
        app=arguments.app or "",
        owner=arguments.owner,
        namespace="" if arguments.all_namespaces else arguments.namespace,
    )
    if arguments.app and not report.bindings:
        raise CommandError(
            f"no GPUBinding counts for such pods of app {arguments.app}; 'kubectl gpu bindings' shows all bindings"
        )
    if arguments.output == "name":
        print("".join(f"gpubinding.{GPU_BINDINGS.group}/{each.name}\n" for each in report.bindings), end="")
        return 0
    print(
        render(
            report,
            table(report, wide=arguments.output == "wide", now=objects.now),
            output=arguments.output,
            headers=not arguments.no_headers,
        ),
        end="",
        flush=True,
    )
    if arguments.output in ("table", "wide"):
        for text in notes(report):
            note(text)
    return 0


def of_objects(bindings: Iterable[Binding], objects: FleetObjects, settings: AllocationSettings) -> BindingsReport:
    """Return the bindings with their cards, the pods that have these, and the problems."""
    cards = _cards(objects, settings)
    holders = _holders(objects.pods, settings)
    found = sorted(
        bindings,
        key=lambda each: (each.spec.app_name, each.spec.owner, each.spec.namespace, each.spec.card, each.name),
    )
    return BindingsReport(
        mode=settings.bindings.mode,
        bindings=tuple(_row(each, cards.get(each.spec.card), holders) for each in found),
        problems=problems.find(found, cards, settings.bindings),
    )


def _cards(objects: FleetObjects, settings: AllocationSettings) -> dict[str, KnownCard]:
    """Return the cards that count, by UUID."""
    modes = {node.metadata.name: binding.share_modes(node.metadata.annotations) for node in objects.nodes or ()}
    return {
        card.uuid: KnownCard(
            node=node.name,
            memory_mib=card.memory_mib.total,
            mode=None if objects.nodes is None else modes.get(node.name, {}).get(card.uuid, "time-slicing"),
        )
        for node in usage_counter.count(objects, settings).nodes
        for card in node.cards
    }


def _holders(pods: Iterable[Pod], settings: AllocationSettings) -> Holders:
    """Return the pods of applications by card; a MIG instance counts as its card."""
    holders: defaultdict[str, list[tuple[AppIdentity, str]]] = defaultdict(list)
    for pod in sorted(pods, key=str):
        identity = AppIdentity.of_labels(pod.metadata.labels, pod.metadata.namespace)
        try:
            held = running_allocation(pod, settings) if identity is not None else None
        except AllocationError:
            continue  # 'kubectl gpu top' shows the pod, and its node takes no other
        if identity is not None and held is not None:
            for card in {charge.parent or charge.uuid for charge in held[1]}:
                holders[card].append((identity, str(pod)))
    return holders


def _row(binding: Binding, card: KnownCard | None, holders: Holders) -> CardBinding:
    spec = binding.spec
    return CardBinding(
        name=binding.name,
        created=binding.created,
        card=spec.card,
        node=card.node if card is not None else "",
        app=spec.app_name,
        owner=spec.owner,
        namespace=spec.namespace,
        memory="" if spec.memory is None else str(spec.memory),
        memory_mib=None if single.memory_error(spec) else spec.memory_mib(),
        share_mode=card.mode if card is not None else None,
        pods=tuple(pod for identity, pod in holders.get(spec.card, ()) if identity.has(spec)),
    )


def table(report: BindingsReport, *, wide: bool, now: float) -> Table:
    """Return one row per binding; the wide table adds all pods, names and ages at Unix time `now`."""
    headers = ["CARD", "NODE", "APP", "OWNER", "NAMESPACE", "MEMORY", "MODE", "PODS"]
    headers += ["BINDING", "AGE"] if wide else []
    return Table(headers, [_cells(each, wide=wide, now=now) for each in report.bindings])


def notes(report: BindingsReport) -> Iterator[str]:
    """Yield the problems, which the table does not show; after ten only how many more there are."""
    if not report.bindings:
        yield "no GPUBindings found"
    yield from (note_of(problem) for problem in report.problems[:_PROBLEMS_SHOWN])
    if len(report.problems) > _PROBLEMS_SHOWN:
        yield f"and {len(report.problems) - _PROBLEMS_SHOWN} more; -o json has all of them"


def note_of(problem: Problem) -> str:
    """Return the text of a problem, with the names of its bindings."""
    if not problem.bindings:
        return problem.message
    kind = "GPUBinding" if len(problem.bindings) == 1 else "GPUBindings"
    return f"{kind} {listed(problem.bindings, shown=_NAMES_SHOWN)}: {problem.message}"


def _cells(binding: CardBinding, *, wide: bool, now: float) -> list[str]:
    row = [
        binding.card,
        binding.node or NOTHING,
        binding.app,
        binding.owner or NOTHING,
        binding.namespace or NOTHING,
        _memory(binding),
        binding.share_mode or _UNKNOWN,
        listed(binding.pods, shown=None if wide else _PODS_SHOWN),
    ]
    return [*row, binding.name, _age(binding.created, now)] if wide else row


def _memory(binding: CardBinding) -> str:
    if binding.memory_mib is not None:
        return f"{binding.memory_mib} MiB"
    return "invalid" if binding.memory else NOTHING


def _age(created: str, now: float) -> str:
    return age(now - datetime.fromisoformat(created).timestamp()) if created else _UNKNOWN
