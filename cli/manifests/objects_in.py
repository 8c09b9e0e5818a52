"""The objects of a document, which may be a list."""

from collections.abc import Iterator
from typing import Any


def objects_in(document: object) -> Iterator[dict[str, Any]]:
    """Return the object of a document, or those inside lists."""
    if not isinstance(document, dict):
        return
    items = document.get("items")
    if str(document.get("kind")).endswith("List") and isinstance(items, list):
        for item in items:
            yield from objects_in(item)
    else:
        yield document
