"""Reads the measurements of the agents, one after the other, so that a large fleet costs a little all the time."""

import asyncio
from collections.abc import Callable
from typing import Final

import aiohttp
import msgspec

from allocation.ledger.ledger import Ledger
from cluster.measurement import LONGEST_TEXT, MOST_CONTAINERS, PATH, NodeMeasurement
from scheduler.measurements.agent_pods import AgentPods
from scheduler.measurements.use_of_shares import UseOfShares
from scheduler.observation_settings import MeasurementSettings

_CONCURRENT: Final = 64
_TIMEOUT: Final = aiohttp.ClientTimeout(total=5.0)
_LARGEST_BODY: Final = 1024 * 1024
_CHUNK: Final = 64 * 1024
_OK: Final = 200
_NO_AGENT: Final = "no agent of Tranche runs on the node"
_DECODER: Final = msgspec.json.Decoder(NodeMeasurement)


class UnreadError(Exception):
    """The measurement of a node cannot be read; the message gives the reason."""


class MeasurementReader:
    """Reads every node with cards once in each interval."""

    def __init__(
        self, ledger: Ledger, agents: AgentPods, *, settings: MeasurementSettings, clock: Callable[[], float]
    ) -> None:
        """Read what `agents` have measured of the nodes of `ledger`."""
        self._ledger = ledger
        self._agents = agents
        self._seconds = settings.read_seconds
        self._use = UseOfShares(
            ledger, read_seconds=settings.read_seconds, idle_seconds=settings.idle_seconds, clock=clock
        )
        self._limit = asyncio.Semaphore(_CONCURRENT)

    @property
    def use(self) -> UseOfShares | None:
        """What pods use of their cards; None if nothing is read."""
        return self._use if self._seconds else None

    async def run(self) -> None:
        """Read until cancelled."""
        if not self._seconds:
            return
        async with (
            client_session() as session,
            asyncio.TaskGroup() as group,
        ):
            group.create_task(self._agents.informer.run(), name="agents")
            await self._agents.informer.synced.wait()
            while True:
                nodes = self._ledger.nodes
                for node in tuple(nodes):
                    await self._limit.acquire()
                    group.create_task(self._read(session, node), name=f"measurement of {node}")
                    await asyncio.sleep(self._seconds / len(nodes) if nodes else 0)
                self._use.forget_nodes()
                if not nodes:
                    await asyncio.sleep(self._seconds)

    async def _read(self, session: aiohttp.ClientSession, node: str) -> None:
        address = self._agents.address(node)
        try:
            if address:
                self._use.record(node, await fetch(session, address, node=node))
            else:
                self._use.record(node, NodeMeasurement(node, problem=_NO_AGENT))
        except UnreadError as error:
            self._use.fail(node, str(error))
        finally:
            self._limit.release()


def client_session() -> aiohttp.ClientSession:
    """Return a session that sends an agent nothing but the request: no credentials, no cookies, by no proxy."""
    return aiohttp.ClientSession(timeout=_TIMEOUT, cookie_jar=aiohttp.DummyCookieJar(), auto_decompress=False)


async def fetch(session: aiohttp.ClientSession, address: str, *, node: str) -> NodeMeasurement:
    """Return the last measurement of the agent at `address`, which must be that of `node`.

    Raises:
        UnreadError: the agent does not respond, or not with a measurement of the node.
    """
    try:
        async with session.get(f"http://{address}{PATH}", allow_redirects=False) as response:
            if response.status != _OK:
                raise UnreadError(f"the agent at {address} responded with status {response.status}")
            body = bytearray()
            async for chunk in response.content.iter_chunked(_CHUNK):
                body += chunk
                if len(body) > _LARGEST_BODY:
                    raise UnreadError(f"the response of the agent at {address} is larger than {_LARGEST_BODY} bytes")
        measured = _DECODER.decode(body)
    except TimeoutError:
        raise UnreadError(f"the agent at {address} has not responded within {_TIMEOUT.total:g} s") from None
    except (aiohttp.ClientError, OSError) as error:
        raise UnreadError(f"the agent at {address} cannot be reached: {error}"[:LONGEST_TEXT]) from None
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        raise UnreadError(f"the agent at {address} sent no measurement: {error}"[:LONGEST_TEXT]) from None
    if measured.node != node:
        raise UnreadError(f"the agent at {address} measures another node")
    if len(measured.containers) > MOST_CONTAINERS:
        raise UnreadError(f"the agent at {address} reports more than {MOST_CONTAINERS} containers")
    return measured
