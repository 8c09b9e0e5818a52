"""A process's metrics as text for Prometheus, without keeping the process from its work for long.

`prometheus_client` takes about 10 µs a line: too much where every card of a large fleet has some. Families of that size
render themselves, and let others work in between.
"""

from collections.abc import AsyncIterator, Callable, Mapping
from typing import Final

from prometheus_client import CollectorRegistry, generate_latest

_ESCAPES: Final = str.maketrans({"\\": r"\\", "\n": r"\n", '"': r"\""})


class Registry(CollectorRegistry):
    """A registry that can have families of many lines, too.

    Attributes:
        large: each answers the text of such families, in parts.
    """

    def __init__(self) -> None:
        super().__init__()
        self.large: list[Callable[[], AsyncIterator[str]]] = []


async def text(registry: Registry) -> bytes:
    """Answer everything that is registered."""
    parts = [generate_latest(registry)]
    for render in registry.large:
        parts += [part.encode() async for part in render()]
    return b"".join(parts)


def labels(pairs: Mapping[str, str]) -> str:
    """Answer labels as they stand behind a name; their values may hold anything."""
    return "{" + ",".join(f'{name}="{value.translate(_ESCAPES)}"' for name, value in pairs.items()) + "}"
