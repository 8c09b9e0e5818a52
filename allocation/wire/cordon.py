"""The list of the cards of a node that take no new pods, as the node's annotation `hami.io/device-cordon` has it."""

from collections.abc import Sequence

from allocation.constraints import words


def edited(annotation: str, uuids: Sequence[str], *, cordoned: bool) -> str | None:
    """Return the annotation with `uuids` added or removed, or None if nothing changes.

    Entries of others keep their order. An empty string means that the list is empty now.
    """
    listed = words(annotation)
    if cordoned:
        missing = [uuid for uuid in uuids if uuid not in listed]
        return ",".join([*listed, *missing]) if missing else None
    kept = [uuid for uuid in listed if uuid not in uuids]
    return ",".join(kept) if len(kept) < len(listed) else None
