"""Who reads the page, and the namespaces whose objects the reader may see."""

from typing import Final, Protocol

from aiohttp import web

CLUSTER: Final = "*"
"""In place of a namespace: what only those may see who may see the pods of all namespaces."""


class Viewer(Protocol):
    """A reader of the page."""

    @property
    def name(self) -> str:
        """The user; empty where the page does not authenticate its readers."""

    async def permitted(self, namespaces: frozenset[str]) -> frozenset[str]:
        """Return those of `namespaces` whose objects the reader may see."""


class Administrator:
    """A reader who may see everything."""

    name = ""

    async def permitted(self, namespaces: frozenset[str]) -> frozenset[str]:
        """Return all of `namespaces`."""
        return namespaces


ADMINISTRATOR: Final = Administrator()

VIEWER: Final = web.RequestKey("viewer", Viewer)
"""Where access control leaves the reader in a request; without it, every reader is an administrator."""
