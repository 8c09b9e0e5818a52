"""The isolations of a node in a fleet file, for which simulated nodes report what this machine does not have."""

from collections.abc import Mapping

from allocation.errors import InvalidFieldError
from allocation.node_isolation import NO_ISOLATION, UNDIVIDED, NodeIsolation


def read_isolation(declared: object, *, place: str) -> NodeIsolation:
    """Return the isolations that a node's mapping declares, none where it declares none.

    `place` is the position of `declared` in the file, for messages.

    Raises:
        InvalidFieldError: a word is unknown.
    """
    if not isinstance(declared, Mapping) or "isolation" not in declared:
        return NO_ISOLATION
    words = declared["isolation"]
    known = {each.value: each for each in sorted(UNDIVIDED)}
    for word in words:
        if not isinstance(word, str) or word not in known:
            raise InvalidFieldError(
                field=f"{place}.isolation",
                value=word,
                expected=f"it must list some of {', '.join(known)}",
                remedy="remove it: none needs nothing, and mig follows from the mode of the cards",
            )
    return NodeIsolation(frozenset(known[word] for word in words))
