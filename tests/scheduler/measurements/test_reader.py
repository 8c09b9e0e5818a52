"""The scheduler reads measurements from agents over HTTP, and believes little of what it gets."""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from typing import Any

import msgspec
import pytest
from aiohttp import web

from cluster.http.listener import listening
from cluster.measurement import MOST_CONTAINERS, PATH, ContainerMeasurement, DeviceMeasurement, NodeMeasurement
from cluster.metadata import ObjectMeta
from scheduler.measurements import reader
from scheduler.measurements.agent_pods import (
    LABELS,
    AgentContainer,
    AgentPod,
    AgentPods,
    AgentSpec,
    AgentStatus,
    ContainerPort,
)
from scheduler.measurements.reader import MeasurementReader, UnreadError, client_session, fetch
from scheduler.observation_settings import MeasurementSettings
from tests.scheduler.support.builders import Clock, allocated, state
from tests.scheduler.support.memory_api import MemoryApi
from tests.scheduler.support.volume_binding import until

CONTAINER = ContainerMeasurement("uid-a", "ab" * 32, "GPU-n1-0", 2**20, 5, 0.0)
MEASURED = NodeMeasurement("n1", 1.0, (DeviceMeasurement("GPU-n1-0", 2**20, 5, 0),), (CONTAINER,))


@asynccontextmanager
async def agent(respond: Callable[[web.Request], Awaitable[web.StreamResponse]]) -> AsyncIterator[str]:
    """Serve an agent, and return its address."""
    app = web.Application()
    app.router.add_get(PATH, respond)
    async with listening(app, host="127.0.0.1", port=0) as port:
        yield f"127.0.0.1:{port}"


async def fetched(content: bytes, **how: Any) -> NodeMeasurement:
    """Read the measurement of n1 from an agent that sends this."""

    async def respond(_request: web.Request) -> web.Response:
        return web.Response(body=content, **how)

    async with agent(respond) as address, client_session() as session:
        return await fetch(session, address, node="n1")


async def test_measurement_is_read_without_credentials() -> None:
    """The request has nothing that would be of use to another process at the address."""
    seen: dict[str, str] = {}

    async def respond(request: web.Request) -> web.Response:
        seen.update(request.headers)
        return web.Response(body=msgspec.json.encode(MEASURED))

    async with agent(respond) as address, client_session() as session:
        assert await fetch(session, address, node="n1") == MEASURED
    assert not {"Authorization", "Cookie"} & set(seen)


@pytest.mark.parametrize(
    ("content", "how", "message"),
    [
        (b"{", {}, "sent no measurement"),
        (b"\xff", {}, "sent no measurement"),
        (b"[" * 100_000, {}, "sent no measurement"),
        (b'{"node":"n1","containers":[{"uid":"u","containerId":"c","device":"d","memoryBytes":-1}]}', {}, "sent no"),
        (b'{"node":"n1","problem":"' + b"x" * 600 + b'"}', {}, "sent no measurement"),
        (b'{"node":"n2"}', {}, "another node"),
        (b'{"node":"n1"}', {"status": 503}, "status 503"),
        (b"", {"status": 302, "headers": {"Location": "http://127.0.0.1/"}}, "status 302"),
        (b" " * (1024 * 1024 + 1), {}, "larger than"),
        (
            msgspec.json.encode(NodeMeasurement("n1", containers=(CONTAINER,) * (MOST_CONTAINERS + 1))),
            {},
            "more than 1024 containers",
        ),
    ],
)
async def test_response_that_is_no_measurement_is_refused(content: bytes, how: dict[str, Any], message: str) -> None:
    """Another process may have the address by now; what it sends has bounds."""
    with pytest.raises(UnreadError, match=message):
        await fetched(content, **how)


async def test_agent_that_does_not_respond_is_given_up(monkeypatch: pytest.MonkeyPatch) -> None:
    """The reading of others goes on."""
    monkeypatch.setattr(reader, "_TIMEOUT", reader.aiohttp.ClientTimeout(total=0.05))
    ended = asyncio.Event()

    async def respond(_request: web.Request) -> web.Response:
        await ended.wait()
        return web.Response()

    async with agent(respond) as address, client_session() as session:
        with pytest.raises(UnreadError, match="has not responded"):
            await fetch(session, address, node="n1")
        ended.set()
    async with client_session() as session:
        with pytest.raises(UnreadError, match="cannot be reached"):
            await fetch(session, address, node="n1")


def agent_pod(name: str = "a", *, node: str = "n1", ip: str = "10.0.0.7", port: str = "metrics") -> AgentPod:
    """Return the pod of an agent."""
    container = AgentContainer((ContainerPort("other", 1), ContainerPort(port, 9090)))
    return AgentPod(ObjectMeta(name=name), AgentSpec(node, (container,)), AgentStatus(ip))


@pytest.mark.parametrize(
    ("ip", "address"),
    [
        ("10.0.0.7", "10.0.0.7:9090"),
        ("fd00::7", "[fd00::7]:9090"),
        *((ip, "") for ip in ("", "127.0.0.1", "::1", "169.254.169.254", "fe80::1", "224.0.0.1", "::", "evil/")),
    ],
)
def test_address_of_an_agent_is_one_that_pods_have(ip: str, address: str) -> None:
    """Neither the scheduler's own host nor the metadata of a cloud is asked, whatever a kubelet writes."""
    assert agent_pod(ip=ip).address == address
    assert not agent_pod(port="http").address


def test_agent_of_a_node_is_found_while_its_pod_is_replaced() -> None:
    """The old pod may be gone after the new one is there."""
    agents = AgentPods(MemoryApi(), relist_seconds=300)
    agents.set_pod(agent_pod("old", ip=""))
    agents.set_pod(agent_pod("new", ip="10.0.0.8"))
    agents.set_pod(agent_pod("pending", node=""))
    assert agents.address("n1") == "10.0.0.8:9090"
    agents.drop_pod(agent_pod("new"))
    assert not agents.address("n1")
    agents.drop_pod(agent_pod("old"))
    agents.drop_pod(agent_pod("old"))
    assert not agents.address("n1")


async def test_each_node_is_read_again_and_again(monkeypatch: pytest.MonkeyPatch) -> None:
    """Those with an agent from its pod; of others the reason is known."""
    made, api = state("n1", "n2"), MemoryApi()
    made.set_pod(allocated("a", node="n1", memory=250))
    made.set_pod(allocated("b", node="n2", memory=250))
    key, _, value = LABELS.partition(",")[2].partition("=")
    labels = {"app.kubernetes.io/name": "tranche", key: value}
    asked = 0

    async def respond(_request: web.Request) -> web.Response:
        nonlocal asked
        asked += 1
        return web.Response(body=msgspec.json.encode(MEASURED))

    async with agent(respond) as address:
        monkeypatch.setattr(AgentPod, "address", property(lambda _: address))
        api.put(
            "pods",
            {
                "metadata": {"name": "agent", "namespace": "tranche-system", "labels": labels},
                "spec": {"nodeName": "n1"},
                "status": {"podIP": "10.0.0.7"},
            },
        )
        settings = MeasurementSettings(read_seconds=0.02)
        on = MeasurementReader(made.ledger, AgentPods(api, relist_seconds=300), settings=settings, clock=Clock())
        use = on.use
        assert use is not None
        running = asyncio.create_task(on.run())
        await until(lambda: asked > 2 and bool(use.of("n1", "uid-a", "GPU-n1-0").containers))
        await until(lambda: use.of("n2", "uid-b", "GPU-n2-0").problem == "no agent of Tranche runs on the node")
        running.cancel()


async def test_nothing_is_read_when_switched_off() -> None:
    """Not even the pods of the agents."""
    agents = AgentPods(MemoryApi(), relist_seconds=300)
    on = MeasurementReader(state("n1").ledger, agents, settings=MeasurementSettings(read_seconds=0), clock=Clock())
    await on.run()
    assert on.use is None
    assert not agents.informer.synced.is_set()
