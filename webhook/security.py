"""Detects privileges that open all cards of a node to a container; a pod with a GPU may not have them."""

from typing import Final

from webhook.review import PodContainer

_SYS_ADMIN: Final = frozenset(("SYS_ADMIN", "CAP_SYS_ADMIN", "ALL"))
"""The spellings that add this capability; runtimes ignore upper and lower case."""


def breach(container: PodContainer) -> str:
    """Return how `container` can reach every card of its node, as a predicate ("is privileged"), or an empty string."""
    context = container.security_context
    if context is None:
        return ""
    if context.privileged:
        return "is privileged"
    added = (context.capabilities.add if context.capabilities is not None else None) or ()
    return next((f"adds capability {name}" for name in added if name.upper() in _SYS_ADMIN), "")
