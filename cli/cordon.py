"""`kubectl gpu cordon` and `uncordon`: the list of cards that take no new pods, on the node that has them."""

import argparse
from collections.abc import Callable, Iterator, Mapping, Sequence
from difflib import get_close_matches
from typing import Final

import msgspec

from allocation import hami, holding
from allocation.constraints import words
from allocation.errors import AllocationError
from allocation.names import CORDON, HAMI_REGISTER
from allocation.settings import AllocationSettings
from cli.errors import CommandError, MissingRightError
from cli.objects import LIVE, NodeMetadata, Pod
from cli.session import Session
from cli.tables import NOTHING, Table, note, render
from cluster.errors import ConflictError, NotFoundError
from cluster.gpu_node_status import GpuNodeStatus
from cluster.resource import GPU_NODE_STATUSES, NODES, PODS

_ATTEMPTS: Final = 10
_NEAR: Final = 3
_SHORTEST_PREFIX: Final = 4
_LISTED_BY: Final = "'kubectl gpu top --cards -o wide' lists them"


class Changed(msgspec.Struct, frozen=True, rename="camel"):
    """What became of one card; `action` says it as kubectl does, `pods` are those that stay on it."""

    uuid: str
    node: str
    cordoned: bool
    action: str
    pods: tuple[str, ...]


class Changes(msgspec.Struct, frozen=True, rename="camel"):
    """What the structured forms print."""

    cards: tuple[Changed, ...]
    dry_run: str


Edit = Callable[[Sequence[str], Sequence[str]], list[str]]
"""Answers the new list from the present one and the UUIDs that are asked for."""


def run(session: Session, arguments: argparse.Namespace) -> int:
    """Keep new pods from cards."""
    return change(session, arguments, cordoned=True)


def change(session: Session, arguments: argparse.Namespace, *, cordoned: bool) -> int:
    """Cordon cards, or take them back, and say so."""
    uuids = tuple(dict.fromkeys(arguments.uuids))
    owners = _owners(session, uuids, cordons_count=not cordoned)
    changed: set[str] = set()
    for node in sorted(set(owners.values())):
        changed |= _edit(
            session, node, [uuid for uuid in uuids if owners[uuid] == node], arguments.dry_run, cordoned=cordoned
        )
    pods = _pods(session) if cordoned else {}
    done = "cordoned" if cordoned else "uncordoned"
    answer = Changes(
        tuple(
            Changed(
                uuid,
                owners[uuid],
                cordoned,
                done if uuid in changed else f"already {done}",
                tuple(pods.get(uuid, ())),
            )
            for uuid in uuids
        ),
        arguments.dry_run,
    )
    _print(answer, arguments)
    return 0


def edited(present: str, uuids: Sequence[str], *, cordoned: bool) -> str | None:
    """Answer the annotation with `uuids` added or taken away, None where nothing is to change.

    What others wrote stays as it stands, in its order; empty means that nothing is left of it.
    """
    listed = words(present)
    if cordoned:
        missing = [uuid for uuid in uuids if uuid not in listed]
        return ",".join([*listed, *missing]) if missing else None
    kept = [uuid for uuid in listed if uuid not in uuids]
    return ",".join(kept) if len(kept) < len(listed) else None


def _owners(session: Session, uuids: Sequence[str], *, cordons_count: bool) -> dict[str, str]:
    """Answer the node of each card; a card that is cordoned is known by that alone to who takes it back.

    Raises:
        CommandError: no node has a card of that UUID.
    """
    known: dict[str, str] = {}
    nodes = session.client.list(NODES, NodeMetadata, metadata_only=True)
    for node in nodes:
        if cordons_count:
            known |= dict.fromkeys(words(node.metadata.annotations.get(CORDON, "")), node.metadata.name)
        known |= dict.fromkeys(_registered(node), node.metadata.name)
    names = {node.metadata.name for node in nodes}
    for status in _statuses(session):
        if status.metadata.name in names and status.status is not None:
            known |= dict.fromkeys((device.uuid for device in status.status.devices), status.metadata.name)
    unknown = [uuid for uuid in uuids if uuid not in known]
    if unknown:
        raise CommandError(
            "; ".join(_unknown(uuid, known) for uuid in unknown) + f"; nothing was changed; {_LISTED_BY}"
        )
    return {uuid: known[uuid] for uuid in uuids}


def _statuses(session: Session) -> list[GpuNodeStatus]:
    try:
        return session.client.list(GPU_NODE_STATUSES, GpuNodeStatus)
    except NotFoundError:
        return []  # only HAMi's annotations say what cards there are


def _registered(node: NodeMetadata) -> Iterator[str]:
    text = node.metadata.annotations.get(HAMI_REGISTER)
    if text is None:
        return
    try:
        yield from (card.uuid for card in hami.decode_register(node.metadata.name, text).cards)
    except AllocationError as error:
        note(str(error))


def _unknown(uuid: str, known: Mapping[str, str]) -> str:
    begun = [each for each in known if len(uuid) >= _SHORTEST_PREFIX and each.lower().startswith(uuid.lower())]
    near = begun[:_NEAR] or get_close_matches(uuid, known, n=_NEAR)
    meant = f": did you mean {' or '.join(f'{each} of node {known[each]}' for each in near)}?" if near else ""
    return f"no node has a card {uuid}{meant}"


def _edit(session: Session, node: str, uuids: Sequence[str], dry_run: str, *, cordoned: bool) -> set[str]:
    """Write a node's list, unless it is right already; answer the UUIDs that were changed.

    The write holds for the version that was read: who writes at the same time loses nothing, and we read again.
    """
    for _ in range(_ATTEMPTS):
        found = session.client.get(NODES, NodeMetadata, name=node, metadata_only=True)
        present = found.metadata.annotations.get(CORDON, "")
        new = edited(present, uuids, cordoned=cordoned)
        if new is None:
            return set()
        changed = {uuid for uuid in uuids if (uuid in words(present)) != cordoned}
        if dry_run == "client":
            return changed
        try:
            session.client.annotate(
                NODES,
                name=node,
                version=found.metadata.resource_version,
                annotations={CORDON: new or None},
                dry_run=dry_run == "server",
            )
        except ConflictError:
            continue
        return changed
    raise CommandError(f"node {node}, annotation {CORDON}: somebody else changed the node {_ATTEMPTS} times; try again")


def _pods(session: Session) -> dict[str, list[str]]:
    """Answer the pods that have shares of each card, by its UUID."""
    found: dict[str, list[str]] = {}
    try:
        pods = session.client.list(PODS, Pod, field_selector=LIVE)
    except MissingRightError as error:
        note(f"which pods stay is not shown: {error}")
        return {}
    for pod in sorted(pods, key=str):
        for uuid in _cards_of(pod):
            found.setdefault(uuid, []).append(str(pod))
    return found


def _cards_of(pod: Pod) -> set[str]:
    """Answer the cards of a pod, whatever its containers have of them."""
    if not pod.live:
        return set()
    try:
        held = holding.of_pod(
            pod.spec, pod.metadata.annotations, node=pod.spec.node_name, settings=AllocationSettings()
        )
    except AllocationError:
        return set()
    return {share.uuid for shares in held[0].containers.values() for share in shares} if held is not None else set()


def _print(answer: Changes, arguments: argparse.Namespace) -> None:
    mark = {"client": " (dry run)", "server": " (server dry run)"}.get(answer.dry_run, "")
    if arguments.output == "name":
        print("".join(f"card/{card.uuid}\n" for card in answer.cards), end="")
        return
    rows = [(card.uuid, card.node, f"{card.action}{mark}", ",".join(card.pods) or NOTHING) for card in answer.cards]
    table = Table(("CARD", "NODE", "ACTION", "PODS THAT STAY"), rows)
    print(render(answer, table, output=arguments.output, headers=not arguments.no_headers), end="")
