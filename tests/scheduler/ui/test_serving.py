"""The scheduler's process serves the page if it is asked to, on a listener of its own."""

from __future__ import annotations

import asyncio
import socket
from types import SimpleNamespace
from typing import Any, cast

import aiohttp
import msgspec
import pytest

from allocation.reason_words import WORDS
from allocation.settings import AllocationSettings
from cluster.api import Api
from cluster.configuration import ClusterSettings, Configuration
from cluster.events import Recorder
from scheduler import servers
from scheduler.leader import Leader
from scheduler.metrics.instruments import Metrics
from scheduler.settings import NamespaceApiSettings, SchedulerSettings
from scheduler.ui_settings import UiSettings
from tests.scheduler.support.memory_api import MemoryApi
from tests.scheduler.support.terms import PATIENCE_S, Cluster, leading
from webhook.settings import WebhookSettings


def free_port() -> int:
    """Return a port that no process uses at this moment."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


def serving(ui: UiSettings, *, namespace_port: int = 0, recorder: Recorder | None = None, **leader: Any) -> Any:
    """Serve as the process does, with a leader that has these properties."""
    api: Api = MemoryApi()
    namespaced = NamespaceApiSettings(host="127.0.0.1", port=namespace_port)
    settings = SchedulerSettings(port=0, ui=ui, namespace_api=namespaced)
    configuration = Configuration(ClusterSettings(), AllocationSettings(), settings, {"webhook": WebhookSettings()})
    return servers.serving(
        configuration,
        api=api,
        leader=cast("Leader", SimpleNamespace(**{"deciding": None, "unready": "", "holder": "b", **leader})),
        metrics=Metrics(),
        recorder=recorder or Recorder(api, component="test", instance="a"),
    )


async def first_event(session: aiohttp.ClientSession, url: str) -> Any:
    """Return the content of the first event of the stream."""
    async with session.get(f"{url}ui/events?section=use") as response:
        async for line in response.content:
            if line.startswith(b"data: "):
                return msgspec.json.decode(line.removeprefix(b"data: "))
    raise AssertionError


@pytest.mark.parametrize(
    ("unready", "state"), [("", "standby"), ("the scheduler has not read the cluster yet", "unready")]
)
async def test_a_replica_that_does_not_lead_says_so(unready: str, state: str) -> None:
    """The page is served by every replica, with the identity of the leader; its API refuses with a reason."""
    port = free_port()
    async with serving(UiSettings(enabled=True, port=port), unready=unready), aiohttp.ClientSession() as session:
        url = f"http://127.0.0.1:{port}/"
        replica = (await first_event(session, url))["replica"]
        assert (replica["state"], replica["leader"], replica["problem"]) == (state, "b", unready)
        async with session.get(f"{url}ui/") as page, session.get(f"{url}api/queues") as api:
            assert (page.status, api.status) == (200, 503)


async def test_the_page_shows_the_term_of_the_process() -> None:
    """Its cards and its decisions, the meanings of the codes, and the API on the same listener."""
    cluster, port, seen = Cluster(), free_port(), dict[str, Any]()
    cluster.node("n1")
    async with asyncio.timeout(PATIENCE_S), leading(cluster), aiohttp.ClientSession() as session:
        cluster.pod("a")
        await cluster.placed("a")
        async with serving(UiSettings(enabled=True, port=port), recorder=cluster.recorder, deciding=cluster.term):
            url = f"http://127.0.0.1:{port}/"
            async with session.get(f"{url}ui/events?section=use&section=decisions") as stream:
                async for line in stream.content:
                    if line.startswith(b'data: {"section"'):
                        content = msgspec.json.decode(line.removeprefix(b"data: "))
                        seen.setdefault(content["section"], {}).update(content["rows"])
                    if seen.keys() == {"use", "decisions"} and seen["decisions"]:
                        break
            assert seen["use"].keys() == {"n1"}
            assert "default/a" in {each["name"] for each in seen["decisions"].values()}
            async with session.get(f"{url}ui/reasons") as reasons, session.get(f"{url}api/explain/default/a") as api:
                assert (await reasons.json())["CardInsufficientMemory"] == WORDS["CardInsufficientMemory"]
                assert (await api.json())["outcome"] == "bound"


async def test_the_page_is_off_by_default_and_apart_from_the_api() -> None:
    """No listener without the setting, and no page on the port that other hosts may reach."""
    port = free_port()
    async with serving(UiSettings(port=port)) as main, aiohttp.ClientSession() as session:
        with pytest.raises(aiohttp.ClientConnectorError):
            await session.get(f"http://127.0.0.1:{port}/ui/")
        async with session.get(f"http://127.0.0.1:{main}/ui/") as response:
            assert response.status == 404


@pytest.mark.parametrize("exposed", [False, True])
async def test_the_page_is_exposed_only_if_it_is_asked_for(exposed: bool) -> None:  # noqa: FBT001 -- a parameter
    """Then it has the same policy on the port of the API for namespaces, and its events need a token."""
    ui, port = UiSettings(enabled=True, port=free_port(), exposed=exposed), free_port()
    async with serving(ui, namespace_port=port), aiohttp.ClientSession() as session:
        url = f"https://127.0.0.1:{port}/ui/"
        async with session.get(url, ssl=False) as page, session.get(f"{url}events", ssl=False) as events:
            assert (page.status, events.status) == ((200, 401) if exposed else (404, 404))
            assert "Content-Security-Policy" in page.headers


async def test_nothing_changes_where_nobody_is_asked_for_a_token() -> None:
    """A card is cordoned on the exposed page only: on loopback there is no such address, on either port without it."""
    ui, port, path = UiSettings(enabled=True, port=free_port(), exposed=True), free_port(), "ui/nodes/n1/cordon"
    change = {"json": {"uuid": "GPU-n1-0", "cordoned": True}, "headers": {"Authorization": "Bearer operator"}}
    async with serving(ui, namespace_port=port) as main, aiohttp.ClientSession() as session:
        async with session.post(f"https://127.0.0.1:{port}/{path}", ssl=False, **change) as exposed:
            assert exposed.status == 503  # this replica does not lead
        for own in (ui.port, main):
            async with (
                session.post(f"http://127.0.0.1:{own}/{path}", **change) as post,
                session.get(f"http://127.0.0.1:{own}/{path}") as get,
            ):
                assert (post.status in (404, 405), get.status) == (True, 404)


def test_an_exposed_page_needs_the_page_and_its_port() -> None:
    """What is missing is named."""
    with pytest.raises(ValueError, match="ui.exposed needs the page: set ui.enabled"):
        UiSettings(exposed=True)
    with pytest.raises(ValueError, match="set namespace_api.port"):
        SchedulerSettings(ui=UiSettings(enabled=True, exposed=True))


@pytest.mark.parametrize("host", ["192.0.2.1", "", "::", "scheduler.example"])
def test_other_hosts_cannot_reach_the_page(host: str) -> None:
    """It does not authenticate its readers, so an address of another kind is refused with the remedy."""
    with pytest.raises(ValueError, match="loopback address; reach it with kubectl port-forward"):
        UiSettings(host=host)


def test_the_number_of_pages_has_limits() -> None:
    """Out of range is refused with the range."""
    with pytest.raises(ValueError, match="from 1 to 1024"):
        UiSettings(most_streams=0)
