"""`kubectl gpu top`: how much of each node and card is reserved, and which pods have shares."""

import argparse
import time
from collections.abc import Callable, Sequence
from typing import Final

from allocation.request import MILLI_PER_PERCENT
from allocation.settings import AllocationSettings
from cli import settings
from cli.errors import CommandError, MissingRightError, UsageError
from cli.kube import own_kinds
from cli.kube.objects import LIVE, Pod
from cli.kube.session import Session
from cli.tables import NOTHING, Table, listed, note, render
from cli.top import fleet_reader, usage_counter
from cli.top.usage import CONDITIONS_OF_CARDS, Amount, CardUsage, FleetUsage, NodeUsage, short_uuid
from cluster.gpu_quota import GpuQuota
from cluster.metadata import timestamp
from cluster.resource import GPU_NODE_STATUSES, GPU_QUOTAS, PODS, RESOURCE_QUOTAS
from cluster.resource_quota import ResourceQuota

_NOTES: Final = 5
_KIND: Final = ("nodes", "node")
_READY: Final = "Ready"
_WHOLE: Final = "whole"
"""Instead of the slots of a card that one pod has alone."""
_PODS_SHOWN: Final = 2


def run(session: Session, arguments: argparse.Namespace) -> int:
    """Print the fleet, or the named nodes, once or at each change."""
    allocation_settings = settings.allocation(arguments.config)
    if arguments.namespaces:
        if arguments.usage:
            raise UsageError("--namespaces and --usage are different tables; use one of them")
        if arguments.cards or arguments.watch or arguments.nodes:
            raise UsageError("--namespaces cannot be combined with --cards, --watch or nodes; leave them out")
        return _namespaces(session, arguments, allocation_settings)
    if arguments.usage:
        if arguments.cards or arguments.watch or arguments.nodes:
            raise UsageError("--usage cannot be combined with --cards, --watch or nodes; leave them out")
        return _usage(session, arguments, allocation_settings)
    if arguments.scheduler_url:
        return _show_own(session, arguments, instead=None)
    try:
        objects = fleet_reader.read(session, with_claims=_shows_claims(arguments))
    except MissingRightError as error:
        return _show_own(session, arguments, instead=error)
    fleet = _selected(usage_counter.count(objects, allocation_settings), arguments)
    _require_named(fleet, arguments)
    _notes(fleet, arguments, any_reported=any(True for _ in objects.statuses))
    text = _text(fleet, arguments)
    if not arguments.watch:
        print(text, end="", flush=True)
        return 0
    print(f"{_stamp(arguments)}{text}", end="", flush=True)
    from cli.top import watch  # noqa: PLC0415 -- watching takes the client of processes that stay, which loads slowly

    return watch.run(
        session,
        first=objects,
        shown=text,
        show=lambda later: _text(_selected(usage_counter.count(later, allocation_settings), arguments), arguments),
        stamp=lambda: _stamp(arguments),
    )


def _namespaces(session: Session, arguments: argparse.Namespace, allocation_settings: AllocationSettings) -> int:
    """Print the usage of namespaces and their limits."""
    from cli.top import namespace_usage  # noqa: PLC0415 -- a command for nodes does not load it

    namespace = "" if arguments.all_namespaces else arguments.namespace
    found = namespace_usage.count(
        session.client.list(PODS, Pod, namespace=namespace, field_selector=LIVE),
        session.client.list(RESOURCE_QUOTAS, ResourceQuota, namespace=namespace),
        allocation_settings,
        gpu_quotas=own_kinds.read_if_possible(session.client, GPU_QUOTAS, GpuQuota, namespace=namespace),
    )
    if not found.namespaces:
        note("no namespace has GPU pods with a node, or a quota that limits GPU resources")
    for each in found.namespaces:
        if each.uncounted:
            note(f"namespace {each.name}: {each.uncounted} running pods cannot be counted; see 'kubectl gpu top'")
    if arguments.output == "name":
        print("".join(f"namespace/{each.name}\n" for each in found.namespaces), end="")
    else:
        print(render(found, found.table(), output=arguments.output, headers=not arguments.no_headers), end="")
    return 0


def _usage(session: Session, arguments: argparse.Namespace, allocation_settings: AllocationSettings) -> int:
    """Print what containers have reserved and what they really use."""
    from cli.top import measured  # noqa: PLC0415 -- the client of the scheduler loads slowly

    namespace = "" if arguments.all_namespaces else arguments.namespace
    found = measured.read(session, allocation_settings, url=arguments.scheduler_url, namespace=namespace)
    if not found.shares:
        note("no pod has a share of a card")
    if arguments.output == "name":
        print("".join(f"pod/{name}\n" for name in dict.fromkeys(share.pod for share in found.shares)), end="")
    else:
        table = found.table(wide=arguments.output == "wide")
        print(render(found, table, output=arguments.output, headers=not arguments.no_headers), end="")
    return 0


def _show_own(session: Session, arguments: argparse.Namespace, *, instead: MissingRightError | None) -> int:
    """Print the shares of the namespace, from the scheduler's API."""
    from cli.kube.scheduler_api import SchedulerApi  # noqa: PLC0415 -- loads slowly, and few users need it
    from cli.top import own_shares  # noqa: PLC0415 -- as above

    if arguments.watch:
        raise CommandError("--watch reads from the API server, which requires ClusterRole tranche-viewer; leave it out")
    namespace = session.namespace
    api = SchedulerApi(session.access, url=arguments.scheduler_url, instead=instead)
    fleet = own_shares.fleet(api.shares(namespace))
    if names := _names(arguments):
        fleet = FleetUsage(tuple(node for node in fleet.nodes if node.name in names))
    _notes(fleet, arguments, any_reported=True)
    print(_text(fleet, arguments), end="", flush=True)
    return 0


def _require_named(fleet: FleetUsage, arguments: argparse.Namespace) -> None:
    names = {node.name for node in fleet.nodes}
    for name in _names(arguments):
        if name not in names:
            raise CommandError(f"node {name} has no cards reported by an agent or an annotation; see 'kubectl gpu top'")


def _names(arguments: argparse.Namespace) -> Sequence[str]:
    """Return the named nodes, without a leading `node` or `nodes`."""
    named: list[str] = arguments.nodes
    return named[1:] if named and named[0] in _KIND else named


def _shows_claims(arguments: argparse.Namespace) -> bool:
    """Whether the output marks cards that ResourceClaims have, too; viewers may list these, and not watch them."""
    shows_cards = arguments.cards or _names(arguments) or arguments.output in ("json", "yaml")
    return bool(shows_cards and not arguments.watch)


def _selected(fleet: FleetUsage, arguments: argparse.Namespace) -> FleetUsage:
    names = _names(arguments)
    if names:
        fleet = FleetUsage(tuple(node for node in fleet.nodes if node.name in names))
    if arguments.namespace and not arguments.all_namespaces:
        fleet = fleet.of_namespace(arguments.namespace)
    return fleet


def _stamp(arguments: argparse.Namespace) -> str:
    """Return a line with the time for above each table of `--watch`; empty for other formats."""
    if arguments.output not in ("table", "wide") or arguments.no_headers:
        return ""
    return f"{timestamp(time.time())}\n"


def _text(fleet: FleetUsage, arguments: argparse.Namespace) -> str:
    if arguments.output == "name":
        return "".join(f"gpunodestatus.{GPU_NODE_STATUSES.group}/{node.name}\n" for node in fleet.nodes)
    table = card_table if arguments.cards or _names(arguments) else node_table
    return render(
        fleet,
        table(fleet, wide=arguments.output == "wide"),
        output=arguments.output,
        headers=not arguments.no_headers,
    )


def _notes(fleet: FleetUsage, arguments: argparse.Namespace, *, any_reported: bool) -> None:
    """Print the reasons why nodes take no pods, which the tables omit; structured formats include them."""
    if not fleet.nodes:
        where = f" with shares of namespace {arguments.namespace}" if arguments.namespace else ""
        hint = "see 'kubectl get gns'" if any_reported else "no node of this cluster reports any"
        note(f"no cards{where}; {hint}")
    if arguments.output not in ("table", "wide"):
        return
    messages = [
        condition.message
        for node in fleet.nodes
        for condition in node.conditions
        if condition.type not in CONDITIONS_OF_CARDS
    ]
    for message in messages[:_NOTES]:
        note(message)
    if len(messages) > _NOTES:
        note(f"and {len(messages) - _NOTES} more; -o json has all of them")


def node_table(fleet: FleetUsage, *, wide: bool = False) -> Table:
    """Return one row per node with the sums of its cards; the wide table adds the agent's state and the models."""
    headers = ["NODE", "STATE", "CARDS", "MEMORY(MiB)", "CORES(%)", "SLOTS", "PODS"]
    if wide:
        headers += ["AGENT", "MODELS"]
    return Table(headers, [_node(node, wide=wide) for node in fleet.nodes])


def card_table(fleet: FleetUsage, *, wide: bool = False) -> Table:
    """Return one row per card; the wide table has the full UUID, the model, the mode, the limits and all pods."""
    headers = ["NODE", "CARD", "UUID", "MEMORY(MiB)", "CORES(%)", "SLOTS", "HEALTH", "PODS"]
    if wide:
        headers[5:5] = ["LIMITS(MiB)", "LIMITS(%)"]
        headers[3:3] = ["MODEL", "MODE"]
    return Table(headers, [_card(node, card, wide=wide) for node in fleet.nodes for card in node.cards])


def _node(node: NodeUsage, *, wide: bool) -> list[str]:
    row = [
        node.name,
        ",".join(map(str, node.conditions)) or _READY,
        str(len(node.cards)),
        str(_sum(node.cards, lambda card: card.memory_mib)),
        _percent(_sum(node.cards, lambda card: card.cores)),
        str(_sum(node.cards, lambda card: card.slots)),
        str(node.pods),
    ]
    if wide:
        row += [node.agent, ",".join(sorted({card.model for card in node.cards if card.model})) or NOTHING]
    return row


def _card(node: NodeUsage, card: CardUsage, *, wide: bool) -> list[str]:
    row = [
        node.name,
        str(card.index),
        card.uuid if wide else short_uuid(card.uuid),
        str(card.memory_mib),
        _percent(card.cores),
        _WHOLE if card.is_whole else str(card.slots),
        card.state,
        listed([str(share) for share in card.shares], shown=None if wide else _PODS_SHOWN),
    ]
    if wide:
        most = card.memory_mib.used + card.burst_memory_mib, card.cores.used + card.burst_cores
        row[5:5] = [str(most[0]), f"{most[1] / MILLI_PER_PERCENT:g}"]
        row[3:3] = [card.model or NOTHING, card.mode]
    return row


def _sum(cards: Sequence[CardUsage], amount: Callable[[CardUsage], Amount]) -> Amount:
    amounts = [amount(card) for card in cards]
    return Amount(sum(each.used for each in amounts), sum(each.total for each in amounts))


def _percent(cores: Amount) -> str:
    return f"{cores.used / MILLI_PER_PERCENT:g}/{cores.total / MILLI_PER_PERCENT:g}"
