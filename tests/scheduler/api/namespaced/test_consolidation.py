"""Consolidation over HTTP: who may ask for it, for which pods, and what the response says."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

from certs.ephemeral import EphemeralSource
from certs.leaf import ServerNames
from certs.source import listener_context
from cluster.http.listener import listening
from scheduler.api.access_reviews import AccessReviews
from scheduler.api.consolidation import Consolidation
from scheduler.api.health import application
from scheduler.api.namespaced.consolidation_routes import consolidation_routes
from scheduler.api.namespaced.gate import NamespaceGate
from scheduler.api.namespaced.paths import CONSOLIDATION
from scheduler.api.token_reviews import TokenReviews
from tests.scheduler.api.namespaced.test_http import RIGHTS, Site
from tests.scheduler.consolidation.scene import Scene

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

ADMINISTRATOR = "administrator"


class Moving(Site):
    """A listener with the API of a scheduler that has a pod to move for one that waits."""

    def __init__(self) -> None:
        super().__init__()
        self.scene = Scene("a", "b", enabled=False)
        self.scene.run("one@a", "two@b")
        self.pods.add_if_new(self.scene.wait("large", namespace="team"))
        gate = NamespaceGate(TokenReviews(self.api), AccessReviews(self.api))
        self.app = application(
            consolidation_routes(
                lambda: Consolidation(self.scene.consolidator, self.pods) if self.decides else None, gate=gate
            )
        )

    async def move(
        self, method: str = "POST", *, caller: str = ADMINISTRATOR, pod: str = "large", **more: Any
    ) -> tuple[int, Any]:
        """Ask for the moves, or how far they are."""
        return await self.ask(method, CONSOLIDATION, token=caller, pod=pod, **more)


@pytest.fixture
async def site(monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[Moving]:
    """Listen while a test runs; the administrator may create pods/eviction in all namespaces."""
    monkeypatch.setitem(RIGHTS, ADMINISTRATOR, {("create", "")})
    made = Moving()
    await made.scene.driver.settle()
    tls = listener_context(EphemeralSource(ServerNames(dns_names=("tranche-scheduler.tranche-system.svc",))))
    async with listening(made.app, host="127.0.0.1", port=0, tls=tls) as port:
        made.url = f"https://127.0.0.1:{port}"
        yield made


async def test_an_administrator_has_pods_moved(site: Moving) -> None:
    """And sees how far the moves are, and how they end."""
    status, begun = await site.move()
    assert (status, begun["node"], begun["count"]) == (200, "a", 1)
    assert begun["moves"] == [{"namespace": "default", "name": "one", "to": "b", "memoryMiB": 1000}]
    assert await site.move("GET") == (200, {"phase": "moving", "done": 0, "total": 1, "outcome": "", "why": ""})
    for _ in ("evicted", "placed again", "seen there"):
        await site.scene.look()
    assert (await site.move("GET"))[1]["done"] == 1
    site.scene.ends("one")
    await site.scene.look()
    ended = {"phase": "ended", "done": 0, "total": 0, "outcome": "placed", "why": ""}
    assert await site.move("GET") == (200, ended)


async def test_who_may_create_pods_of_the_namespace_may_not_have_others_evicted(site: Moving) -> None:
    """The right to create pods/eviction in all namespaces is asked for, not one in the namespace."""
    status, said = await site.move(caller="editor")
    assert (status, said["error"]) == (
        403,
        "editor cannot create pods/eviction in all namespaces; ask an administrator of the cluster",
    )
    assert (await site.move("GET", caller="editor"))[0] == 403
    assert site.api.asked[-1]["resourceAttributes"]["subresource"] == "eviction"
    assert site.scene.held() == []


async def test_no_more_pods_are_moved_than_the_caller_agreed_to(site: Moving) -> None:
    """Nothing is held then; the number is checked."""
    status, refused = await site.move(query="?most-moves=0")
    assert (status, refused["why"]) == (200, "1 pods would have to be moved now, more than 0")
    assert (await site.move(query="?most-moves=many"))[0] == 400
    assert (await site.move(query="?most-moves=10000"))[0] == 400
    assert site.scene.held() == []


async def test_pods_that_do_not_exist_are_not_found(site: Moving) -> None:
    """Nor those for which no pods are moved."""
    assert (await site.move(pod="other"))[0] == 404
    assert (await site.move("GET"))[0] == 404


async def test_a_replica_that_does_not_lead_moves_nothing(site: Moving) -> None:
    """And reviews no callers."""
    site.decides = False
    assert (await site.move())[0] == 503
    assert site.api.asked == []
