"""Statuses of GpuClaims are written in the order in which things happened, whatever the API server answers."""

from __future__ import annotations

import asyncio
import random
from contextlib import asynccontextmanager
from itertools import groupby, pairwise
from typing import TYPE_CHECKING, Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from allocation.allocation import Allocation, CardShare, ClaimMark
from allocation.names import ALLOCATION, CLAIM
from allocation.wire.record import encode
from cluster.errors import ApiError, ClusterError, ConflictError, NotFoundError, TooManyRequestsError, UnreachableError
from cluster.resource import GPU_CLAIMS
from scheduler.claims import writer
from scheduler.claims.claims import Claims
from scheduler.claims.writer import StatusWriter
from tests.scheduler.support.builders import pod
from tests.scheduler.support.claims import claim, claiming
from tests.scheduler.support.fencing import fenced

if TYPE_CHECKING:
    from collections.abc import AsyncIterator


MINE = claim("c")
WAITS = claiming("a", MINE)
HELD = Allocation("n1", {"main": (CardShare("GPU-0", 0, 1000, 1000),)}, ClaimMark("c", "Exclusive"))
RUNS = pod("a", node="n1", phase="Running", annotations={CLAIM: "c", ALLOCATION: encode(HELD)})


class Server:
    """An API server that raises the next of `errors`, or stores the status."""

    def __init__(self, *errors: ClusterError) -> None:
        self.errors = [*errors]
        self.bodies: list[dict[str, Any]] = []
        self.is_open = asyncio.Event()
        self.is_open.set()

    async def request(self, method: str, path: str, *, body: dict[str, Any], **_: object) -> bytes:
        """Store a status."""
        assert (method, path) == ("PATCH", GPU_CLAIMS.path(namespace="default", name="c", subresource="status"))
        await self.is_open.wait()
        if self.errors:
            raise self.errors.pop(0)
        self.bodies.append(body)
        return b"{}"

    @property
    def phases(self) -> list[str]:
        """The phases that were written."""
        return [body["status"]["phase"] for body in self.bodies]


def answer(kind: type[ApiError], status: int) -> ApiError:
    """Return an error of the API server."""
    return kind(request="PATCH", status=status, reason="", message="no")


@asynccontextmanager
async def writing(server: Server, claims: Claims, *, is_trusted: bool = True) -> AsyncIterator[asyncio.Task[None]]:
    """Run the writer."""
    task = asyncio.create_task(StatusWriter(fenced(server, is_trusted=lambda: is_trusted), claims).run())
    await settled()
    yield task
    task.cancel()
    await asyncio.gather(task, return_exceptions=True)


async def settled() -> None:
    """Let the writer write what it can."""
    for _ in range(50):
        await asyncio.sleep(0)


def bound(claims: Claims) -> None:
    """Let the pod get a node and be bound."""
    claims.set_pod(WAITS)
    claims.set_reserved(WAITS.uid, HELD)
    claims.set_pod(RUNS)


async def test_a_slow_api_server_gets_every_phase_before_bound() -> None:
    """All of it happened while the first status was being written."""
    server, claims = Server(), Claims()
    server.is_open.clear()
    claims.set(MINE)
    async with writing(server, claims):
        bound(claims)
        server.is_open.set()
        await settled()
    assert [phase for phase, _ in groupby(server.phases)] == ["Pending", "Reserved", "Bound"]
    assert server.bodies[-1]["metadata"] == {"uid": "uid-c"}
    assert server.bodies[-1]["status"]["allocated"] == "n1:0"


@pytest.mark.parametrize(
    ("error", "phases"),
    [
        (UnreachableError("no response"), ["Pending", "Bound"]),
        (answer(ApiError, 503), ["Pending", "Bound"]),
        (answer(TooManyRequestsError, 429), ["Pending", "Bound"]),
        (answer(ApiError, 403), ["Bound"]),
        (answer(ConflictError, 409), ["Bound"]),
        (answer(NotFoundError, 404), ["Bound"]),
    ],
)
async def test_a_status_is_repeated_only_if_that_may_help(
    monkeypatch: pytest.MonkeyPatch, error: ClusterError, phases: list[str]
) -> None:
    """After a pause if the server did not respond or was busy; not if it refused, or the claim is another one now."""
    pauses: list[float] = []

    async def sleep(seconds: float) -> None:
        pauses.append(seconds)

    monkeypatch.setattr(writer, "sleep", sleep)
    server, claims = Server(error), Claims()
    claims.set(MINE)
    async with writing(server, claims):
        claims.set_pod(RUNS)
        await settled()
    assert server.phases == phases
    assert len(pauses) == len(phases) - 1


async def test_only_what_changed_is_written() -> None:
    """A new term writes no status that is right already, and later none that is equal to the last."""
    server, claims = Server(), Claims()
    claims.set(MINE)
    async with writing(server, claims):
        bound(claims)
        await settled()
    written = msgspec.convert(server.bodies[-1]["status"], type(MINE.status), strict=False)
    again, next_term = Server(), Claims()
    next_term.set(msgspec.structs.replace(MINE, status=written))
    bound(next_term)
    async with writing(again, next_term):
        next_term.set_pod(RUNS)
        next_term.set(MINE)
        await settled()
        assert again.bodies == []
        next_term.drop_pod(RUNS.uid)
        await settled()
    assert again.phases == ["Pending"]


async def test_only_the_leader_writes() -> None:
    """A replica that is not trusted any more ends its writer."""
    server, claims = Server(), Claims()
    claims.set(MINE)
    async with writing(server, claims, is_trusted=False) as task:
        assert task.done()
    assert server.bodies == []


async def test_a_claim_that_was_created_again_gets_a_status_of_its_own() -> None:
    """And none that was meant for the deleted one."""
    server, claims = Server(), Claims()
    claims.set(MINE)
    async with writing(server, claims):
        await settled()
        server.is_open.clear()
        claims.set_pod(WAITS)
        await settled()
        claims.set(claim("c", count=2))
        other = claim("c", count=2)
        other.metadata.uid = "uid-other"
        claims.set(other)
        server.is_open.set()
        await settled()
    assert [body["metadata"]["uid"] for body in server.bodies] == ["uid-c", "uid-c", "uid-other"]


@given(st.integers(0, 2**32))
def test_reserved_is_written_before_bound(seed: int) -> None:
    """For any history and any speed of the API server; the last status written is the current one."""
    asyncio.run(_history(random.Random(seed)))  # noqa: S311 -- a test


async def _history(chance: random.Random) -> None:
    server, claims = Server(), Claims()
    claims.set(MINE)
    happened = ["Pending"]
    async with writing(server, claims):
        for _ in range(chance.randint(1, 20)):
            match chance.choice(("reserve", "fail", "bind", "end", "slow", "fast", "wait")):
                case "reserve" if happened[-1] in ("Pending", "Failed"):
                    claims.set_pod(WAITS)
                    claims.set_reserved(WAITS.uid, HELD)
                    happened.append("Reserved")
                case "fail" if happened[-1] == "Reserved":
                    claims.set_failed(WAITS.uid, "BindingRefused", "no")
                    happened.append("Failed")
                case "bind" if happened[-1] == "Reserved":
                    claims.set_pod(RUNS)
                    happened.append("Bound")
                case "end":
                    claims.drop_pod(WAITS.uid)
                    happened.append("Pending")
                case "slow":
                    server.is_open.clear()
                case "fast":
                    server.is_open.set()
                case _:
                    await settled()
        server.is_open.set()
        await settled()
    assert server.phases[-1] == happened[-1]
    written = [phase for phase, _ in groupby(server.phases)]
    assert all(before == "Reserved" for before, after in pairwise(written) if after == "Bound")
    remaining = iter(happened)
    assert all(phase in remaining for phase in written), (written, happened)
