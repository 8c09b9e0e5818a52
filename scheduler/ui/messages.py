"""What the page's event stream says: server-sent events, with the position from which a reader can go on."""

from collections.abc import Collection, Iterator, Mapping
from typing import Final, Literal

import msgspec

from scheduler.api.json_names import json_name
from scheduler.ui.table import Difference

_PIECE_BYTES: Final = 1 << 16


class Replica(msgspec.Struct, frozen=True, rename=json_name):
    """The replica that the page is connected to.

    Attributes:
        state: `deciding`; `standby`, another replica leads; or `unready`, it neither leads nor knows that another does,
            or has not read the cluster yet.
        problem: why it is not ready; empty if it is.
        leader: the identity of the replica that leads; empty if it is not known.
        mode: `loop`, or `extender` behind kube-scheduler.
        version: the version of the program.
    """

    state: Literal["deciding", "standby", "unready"]
    problem: str
    leader: str
    mode: Literal["loop", "extender"]
    version: str


class Cursor(msgspec.Struct, frozen=True):
    """The position of a reader in one table."""

    generation: str
    version: int


def read_cursors(text: str) -> dict[str, Cursor]:
    """Return the cursors in the ID of an event, by section; what is not one is left out."""
    cursors = {}
    for part in text.split(";"):
        name, _, position = part.partition("=")
        generation, _, version = position.partition(".")
        if name and generation and version.isdecimal() and len(version) < 16:
            cursors[name] = Cursor(generation, int(version))
    return cursors


def event_id(cursors: Mapping[str, Cursor]) -> str:
    """Return the ID of an event after which a reader has these positions."""
    return ";".join(f"{name}={each.generation}.{each.version}" for name, each in cursors.items())


def event(name: str, content: object, *, id_: str = "") -> bytes:
    """Return one event."""
    return _event(name, msgspec.json.encode(content), id_)


def rows(section: str, difference: Difference, *, permitted: Collection[str], id_: str) -> Iterator[bytes]:
    """Yield the events that tell a reader a difference, without the rows of namespaces that are not `permitted`.

    The last one has the ID, so that a reader that got only some of them gets all again.
    """
    name, reset = msgspec.json.encode(section), difference.is_complete
    removed = msgspec.json.encode([key for key, namespace in difference.removed if namespace in permitted])
    piece: list[bytes] = []
    size = 0
    for key, row in difference.rows:
        if row.namespace in permitted:
            piece.append(msgspec.json.encode(key) + b":" + row.content)
            size += len(piece[-1])
            if size > _PIECE_BYTES:
                yield _rows(name, piece, b"[]", reset=reset, id_="")
                piece, size, reset = [], 0, False
    yield _rows(name, piece, removed, reset=reset, id_=id_)


def _rows(section: bytes, piece: list[bytes], removed: bytes, *, reset: bool, id_: str) -> bytes:
    content = b'{"section":%b,"reset":%b,"rows":{%b},"removed":%b,"end":%b}' % (
        section,
        b"true" if reset else b"false",
        b",".join(piece),
        removed,
        b"true" if id_ else b"false",
    )
    return _event("rows", content, id_)


def _event(name: str, content: bytes, id_: str) -> bytes:
    identified = f"id: {id_}\n".encode() if id_ else b""
    return b"event: %b\n%bdata: %b\n\n" % (name.encode(), identified, content)
