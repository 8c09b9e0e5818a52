"""`kubectl gpu cordon` and `kubectl gpu uncordon`: edit a node's list of cards that accept no new pods."""

import argparse
from collections.abc import Iterator, Mapping, Sequence
from difflib import get_close_matches
from typing import Final

import msgspec

from allocation.constraints import words
from allocation.errors import AllocationError
from allocation.names import CORDON, HAMI_REGISTER
from allocation.settings import AllocationSettings
from allocation.wire import hami
from allocation.wire.cordon import edited
from cli.errors import CommandError, MissingRightError, NotInstalledError
from cli.kube.objects import LIVE, NodeMetadata, Pod
from cli.kube.own_kinds import gpu_node_statuses
from cli.kube.session import Session
from cli.tables import NOTHING, Table, note, render
from cluster.errors import ConflictError
from cluster.gpu_node_status import GpuNodeStatus
from cluster.resource import NODES, PODS
from scheduler.state.running_allocation import running_allocation

_ATTEMPTS: Final = 10
_SUGGESTIONS: Final = 3
_SHORTEST_PREFIX: Final = 4


class CardChange(msgspec.Struct, frozen=True, rename="camel"):
    """The result for one card.

    Attributes:
        uuid: the card.
        node: the node that has the card.
        cordoned: whether the card is cordoned now.
        action: the change in kubectl's words, such as "cordoned" or "already cordoned".
        pods: the pods that keep their shares of a cordoned card.
    """

    uuid: str
    node: str
    cordoned: bool
    action: str
    pods: tuple[str, ...]


class CardChanges(msgspec.Struct, frozen=True, rename="camel"):
    """What `-o json` and `-o yaml` print."""

    cards: tuple[CardChange, ...]
    dry_run: str


def run(session: Session, arguments: argparse.Namespace) -> int:
    """Cordon or uncordon cards, as `arguments.command` says, and print the result."""
    cordoned = arguments.command == "cordon"
    nodes = _nodes(session, arguments.cards, include_cordoned=not cordoned)
    uuids = tuple(nodes)
    changed: set[str] = set()
    for node in sorted(set(nodes.values())):
        changed |= _edit(
            session, node, [uuid for uuid in uuids if nodes[uuid] == node], arguments.dry_run, cordoned=cordoned
        )
    pods = _pods(session) if cordoned else {}
    action = "cordoned" if cordoned else "uncordoned"
    changes = CardChanges(
        tuple(
            CardChange(
                uuid,
                nodes[uuid],
                cordoned,
                action if uuid in changed else f"already {action}",
                tuple(pods.get(uuid, ())),
            )
            for uuid in uuids
        ),
        arguments.dry_run,
    )
    _print(changes, arguments)
    return 0


def _nodes(session: Session, cards: Sequence[str], *, include_cordoned: bool) -> dict[str, str]:
    """Return the node of each card by its UUID, from reports and register annotations.

    `cards` are UUIDs, and names of nodes (`NAME` or `node/NAME`) for all of their cards.

    With `include_cordoned` a cordoned card is found on its node even when nothing reports it any more.

    Raises:
        CommandError: no node has a card with one of the UUIDs, or a node has no cards.
    """
    nodes_of_cards: dict[str, str] = {}
    nodes = session.client.list(NODES, NodeMetadata, metadata_only=True)
    for node in nodes:
        if include_cordoned:
            cordoned = words(node.metadata.annotations.get(CORDON, ""))
            nodes_of_cards |= dict.fromkeys(cordoned, node.metadata.name)
        nodes_of_cards |= dict.fromkeys(_registered(node), node.metadata.name)
    names = {node.metadata.name for node in nodes}
    for report in _reports(session):
        if report.metadata.name in names and report.status is not None:
            nodes_of_cards |= dict.fromkeys((device.uuid for device in report.status.devices), report.metadata.name)
    chosen: dict[str, str] = {}
    unknown: list[str] = []
    for word in cards:
        name = word.removeprefix("nodes/").removeprefix("node/")
        if word in nodes_of_cards:
            chosen[word] = nodes_of_cards[word]
        elif name in names:
            chosen |= _of_node(name, nodes_of_cards)
        else:
            unknown.append(word)
    if unknown:
        raise CommandError(
            "; ".join(_unknown(uuid, nodes_of_cards) for uuid in unknown)
            + "; nothing was changed; see 'kubectl gpu top --cards -o wide'"
        )
    return chosen


def _of_node(name: str, nodes_of_cards: Mapping[str, str]) -> dict[str, str]:
    cards = {uuid: node for uuid, node in nodes_of_cards.items() if node == name}
    if not cards:
        raise CommandError(f"node {name} has no cards; nothing was changed; see 'kubectl gpu top'")
    return dict(sorted(cards.items()))


def _reports(session: Session) -> list[GpuNodeStatus]:
    try:
        return gpu_node_statuses(session.client)
    except NotInstalledError:
        return []  # cards of HAMi's device plugin can be cordoned without an installation


def _registered(node: NodeMetadata) -> Iterator[str]:
    text = node.metadata.annotations.get(HAMI_REGISTER)
    if text is None:
        return
    try:
        yield from (card.uuid for card in hami.decode_register(node.metadata.name, text).cards)
    except AllocationError as error:
        note(str(error))


def _unknown(uuid: str, nodes_of_cards: Mapping[str, str]) -> str:
    completions = [
        card for card in nodes_of_cards if len(uuid) >= _SHORTEST_PREFIX and card.lower().startswith(uuid.lower())
    ]
    similar = completions[:_SUGGESTIONS] or get_close_matches(uuid, nodes_of_cards, n=_SUGGESTIONS)
    suggestions = " or ".join(f"{card} of node {nodes_of_cards[card]}" for card in similar)
    return f"no node has a card {uuid}{f': did you mean {suggestions}?' if suggestions else ''}"


def _edit(session: Session, node: str, uuids: Sequence[str], dry_run: str, *, cordoned: bool) -> set[str]:
    """Update a node's list if necessary; return the UUIDs that changed.

    A write applies only to the version that was read. After a concurrent change the node is read again.
    """
    for _ in range(_ATTEMPTS):
        current = session.client.get(NODES, NodeMetadata, name=node, metadata_only=True)
        annotation = current.metadata.annotations.get(CORDON, "")
        new = edited(annotation, uuids, cordoned=cordoned)
        if new is None:
            return set()
        changed = {uuid for uuid in uuids if (uuid in words(annotation)) != cordoned}
        if dry_run == "client":
            return changed
        try:
            session.client.annotate(
                NODES,
                name=node,
                version=current.metadata.resource_version,
                annotations={CORDON: new or None},
                dry_run=dry_run == "server",
            )
        except ConflictError:
            continue
        return changed
    raise CommandError(
        f"annotation {CORDON} of node {node} was not written: others changed the node during each of {_ATTEMPTS}"
        " attempts; try again"
    )


def _pods(session: Session) -> dict[str, list[str]]:
    """Return the pods that have shares of each card, by its UUID."""
    pods_of_cards: dict[str, list[str]] = {}
    try:
        pods = session.client.list(PODS, Pod, field_selector=LIVE)
    except MissingRightError as error:
        note(f"the pods on these cards are not shown: {error}")
        return {}
    for pod in sorted(pods, key=str):
        for uuid in _cards_of(pod):
            pods_of_cards.setdefault(uuid, []).append(str(pod))
    return pods_of_cards


def _cards_of(pod: Pod) -> set[str]:
    """Return the cards of which any container of a pod has a share."""
    try:
        held = running_allocation(pod, AllocationSettings())
    except AllocationError:
        return set()
    if held is None:
        return set()
    allocation, _ = held
    return {share.uuid for shares in allocation.containers.values() for share in shares}


def _print(changes: CardChanges, arguments: argparse.Namespace) -> None:
    suffix = {"client": " (dry run)", "server": " (server dry run)"}.get(changes.dry_run, "")
    if arguments.output == "name":
        print("".join(f"card/{card.uuid}\n" for card in changes.cards), end="")
        return
    rows = [(card.uuid, card.node, f"{card.action}{suffix}", ",".join(card.pods) or NOTHING) for card in changes.cards]
    table = Table(("CARD", "NODE", "ACTION", "REMAINING PODS"), rows)
    print(render(changes, table, output=arguments.output, headers=not arguments.no_headers), end="")
