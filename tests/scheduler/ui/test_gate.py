"""Who reads the exposed page, and what each reader sees."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import AsyncExitStack

import pytest

from allocation.steps import Steps
from scheduler.api.namespaced.paths import TOKEN_HEADER
from scheduler.term import LeaderTerm
from scheduler.ui.feed import Kind
from scheduler.ui.gate import URL
from scheduler.ui.table import Table
from scheduler.ui.viewer import CLUSTER
from tests.scheduler.ui.exposing import Exposed, exposing
from tests.scheduler.ui.pages import Reader

EVENTS = "ui/events"


class _Pods:
    """A section with a row for each pod."""

    def __init__(self, term: LeaderTerm) -> None:
        self._pods = term.informers.pods

    def refresh(self, table: Table) -> Steps[None]:
        """Read the names of all pods; those of one namespace stand for what is not of any."""
        for pod in self._pods:
            namespace = pod.metadata.namespace
            where = CLUSTER if namespace == "shared" else namespace
            table.put(str(pod), b'"%b"' % pod.metadata.name.encode(), namespace=where)
        table.retain([str(pod) for pod in self._pods])
        yield


@pytest.fixture
async def site() -> AsyncIterator[Exposed]:
    """The exposed page of a cluster with a pod of each of two tenants, which are in no other's namespace."""
    async with exposing(kinds={"pods": Kind(lambda term, _: _Pods(term))}) as site:
        for namespace in ("red", "blue"):
            site.cluster.pod(f"{namespace}-first", namespace=namespace)
        yield site


def seen(reader: Reader) -> set[str]:
    """Return the pods that a reader has."""
    return set(reader.rows.get("pods", {}))


def heard(reader: Reader) -> str:
    """Return everything that a reader was ever sent."""
    return repr(reader.events)


async def test_tenants_see_only_their_own_namespaces(site: Exposed) -> None:
    """In the snapshot, in what changes, and in what is removed: no event of one tenant names the other."""
    async with (
        site.reading("red", "pods") as red,
        site.reading("blue", "pods") as blue,
        site.reading("administrator", "pods") as everyone,
    ):
        await everyone.until(lambda: seen(everyone) == {"red/red-first", "blue/blue-first"}, "pods of both")
        for name, reader in (("red", red), ("blue", blue)):
            await reader.until(lambda reader=reader, name=name: seen(reader) == {f"{name}/{name}-first"}, "own pods")
        for name in ("red", "blue"):
            site.cluster.pod(f"{name}-second", namespace=name)
        for name, reader in (("red", red), ("blue", blue)):
            await reader.until(lambda reader=reader, name=name: f"{name}/{name}-second" in seen(reader), "own pods")
        for name in ("red", "blue"):
            site.cluster.end(f"{name}-first", name)
        for name, reader in (("red", red), ("blue", blue)):
            await reader.until(lambda reader=reader, name=name: seen(reader) == {f"{name}/{name}-second"}, "removal")
        await everyone.until(lambda: seen(everyone) == {"red/red-second", "blue/blue-second"}, "pods of both")
        assert "blue" not in heard(red)
        assert "red" not in heard(blue)


async def test_what_belongs_to_the_cluster_needs_the_right_for_all_namespaces(site: Exposed) -> None:
    """No right in a namespace gives it, not even in one with a name that none can have."""
    site.api.rights["red"] |= {("list", CLUSTER)}
    site.cluster.pod("of-the-cluster", namespace="shared")
    async with site.reading("administrator", "pods") as everyone, site.reading("red", "pods") as red:
        await everyone.until(lambda: len(seen(everyone)) == 3, "all pods")
        await red.until(lambda: seen(red) == {"red/red-first"}, "own pods")
        assert "shared" not in heard(red)


async def test_stream_that_goes_on_shows_no_more(site: Exposed) -> None:
    """The position of another reader gives no right to what that one saw."""
    async with site.reading("administrator", "pods") as everyone:
        await everyone.until(lambda: len(seen(everyone)) == 2, "pods of both")
        position = everyone.last_id
        site.cluster.pod("blue-second", namespace="blue")
        site.cluster.pod("red-second", namespace="red")
        async with site.reading("red", "pods", after=position) as red:
            await red.until(lambda: seen(red) == {"red/red-second"}, "what is new")
            assert "blue" not in heard(red)


@pytest.mark.parametrize(
    ("headers", "status", "words"),
    [
        ({}, 401, "a bearer token is needed"),
        ({"Authorization": "Basic eDp5"}, 401, "a bearer token is needed"),
        ({TOKEN_HEADER: "forged"}, 401, "does not accept the bearer token"),
        ({"Authorization": "Bearer forged"}, 401, "does not accept the bearer token"),
        ({TOKEN_HEADER: "stranger"}, 403, f"stranger cannot get {URL}; ask an administrator of the cluster for"),
    ],
)
async def test_readers_without_a_right_get_no_event(
    site: Exposed, headers: dict[str, str], status: int, words: str
) -> None:
    """The error names what is missing."""
    received = await site.get(EVENTS, headers)
    assert received[0] == status
    assert words in received[1]


async def test_token_of_a_proxy_is_accepted(site: Exposed) -> None:
    """One in front of the page sends it as Authorization; the section that is asked for does not exist."""
    assert (await site.get(f"{EVENTS}?section=none", {"Authorization": "Bearer red"}))[0] == 404


async def test_files_need_no_token(site: Exposed) -> None:
    """They are the same for each reader, and ask for the token."""
    status, text = await site.get("ui/", {})
    assert (status, "<title>Tranche</title>" in text) == (200, True)


async def test_nothing_is_shown_while_nobody_can_be_asked(site: Exposed) -> None:
    """A reader who cannot be reviewed is refused; the stream of one whose namespaces cannot be reviewed ends."""
    site.api.is_away = True
    status, text = await site.get(EVENTS, {TOKEN_HEADER: "red"})
    assert (status, text) == (503, "the API server could not be asked about the reader; try again")
    site.api.is_away = False
    async with site.reading("red", "pods") as red:
        await red.until(lambda: seen(red) == {"red/red-first"}, "own pods")
        site.api.is_away = True
        site.cluster.pod("green-first", namespace="green")
        await red.until(red._response.content.at_eof, "end of the stream")
        assert "green" not in heard(red)


async def test_reviews_are_cached_for_a_minute(site: Exposed) -> None:
    """Changes ask the API server nothing; afterwards a withdrawn right is noticed."""
    async with site.reading("red", "pods") as red:
        await red.until(lambda: seen(red) == {"red/red-first"}, "own pods")
        asked = len(site.api.reviewed)
        site.cluster.pod("red-second", namespace="red")
        await red.until(lambda: "red/red-second" in seen(red), "own pods")
        assert len(site.api.reviewed) == asked
        site.api.rights["red"] -= {("list", "red")}
        site.clock.now += 61
        site.cluster.pod("red-third", namespace="red")
        site.cluster.node("n3")
        await red.until(lambda: len(site.api.reviewed) > asked, "reviews")
    async with site.reading("red", "pods") as red:
        await red.until(lambda: "pods" in red.rows, "the snapshot")
        assert seen(red) == set()


async def test_view_ends_after_five_minutes(site: Exposed) -> None:
    """The token may have expired; the page shows it again and goes on where it was."""
    async with site.reading("red", "pods") as red:
        await red.until(lambda: seen(red) == {"red/red-first"}, "own pods")
        site.clock.now += 301
        site.cluster.pod("red-second", namespace="red")
        await red.until(red._response.content.at_eof, "end of the stream")
        assert "red-second" not in heard(red)
    async with site.reading("red", "pods", after=red.last_id) as red:
        await red.until(lambda: seen(red) == {"red/red-second"}, "what is new")


async def test_one_reader_leaves_room_for_others(site: Exposed) -> None:
    """The ninth page of one user is refused, while another user's is not."""
    async with AsyncExitStack() as stack:
        for _ in range(8):
            await stack.enter_async_context(site.reading("red", "pods"))
        assert (await site.get(EVENTS, {TOKEN_HEADER: "red"}))[0] == 429
        async with site.reading("blue", "pods") as blue:
            await blue.until(lambda: seen(blue) == {"blue/blue-first"}, "own pods")
