"""The verbs over real HTTP: bad input gets an error message, and the process continues to serve."""

import io
from collections.abc import AsyncIterator
from typing import Any

import aiohttp
import msgspec
import pytest

from cluster.http.listener import listening
from scheduler.api.authentication import Authenticator, require_caller
from scheduler.api.health import application
from scheduler.extender.routes import PATHS, extender_routes
from scheduler.extender.verbs import Extender
from scheduler.serving_settings import ServingSettings
from tests.scheduler.support.builders import pod, state
from tests.scheduler.support.extending import Bindings, extending

LARGEST_MIB = 64


class Site:
    """A listener with the verbs, as the process has it."""

    def __init__(self) -> None:
        self.api = Bindings()
        self.api.pods["a"] = pod("a", memory=600)
        self.state = state("n1")
        self.verbs: Extender | None = extending(self.state, self.api)
        self.url = ""

    async def post(self, path: str, body: bytes) -> tuple[int, Any]:
        """Post `body` and return the status, and the response as JSON or else as text."""
        async with aiohttp.ClientSession() as session, session.post(self.url + path, data=io.BytesIO(body)) as answer:
            text = await answer.read()
            try:
                return answer.status, msgspec.json.decode(text)
            except msgspec.DecodeError:
                return answer.status, text.decode()

    async def serves(self) -> bool:
        """Whether a valid request succeeds."""
        body = msgspec.json.encode({"pod": self.api.pods["a"], "nodenames": ["n1"]})
        return await self.post("/filter", body) == (200, {"nodenames": ["n1"]})


@pytest.fixture
async def site() -> AsyncIterator[Site]:
    """Listen while a test runs."""
    made = Site()
    guard = require_caller(Authenticator(made.api, ServingSettings()), PATHS)
    app = application(extender_routes(lambda: made.verbs), largest_body_mib=LARGEST_MIB, middlewares=[guard])
    async with listening(app, host="127.0.0.1", port=0) as port:
        made.url = f"http://127.0.0.1:{port}"
        yield made


GOOD = msgspec.json.encode({"pod": pod("a", memory=600), "nodenames": ["n1"]})


@pytest.mark.parametrize(
    "body", [b"", b"no json", GOOD[:-20], b"\xff\xfe\x00", b"{}", b'{"pod":{"apiVersion":"v9"},"nodenames":[]}']
)
async def test_malformed_bodies_get_an_error_message(site: Site, body: bytes) -> None:
    """Not JSON, truncated, empty, foreign: `error` says what is wrong; scores have no such field and get a status."""
    for path in ("/filter", "/bind"):
        status, answer = await site.post(path, body)
        assert status == 200
        assert answer["error"]
    for path in ("/prioritize", "/preempt"):
        status, text = await site.post(path, body)
        assert status == 400
        assert text
    assert await site.serves()


async def test_fifty_megabytes_are_accepted(site: Site) -> None:
    """5,000 node objects of 10 KiB, as an autoscaler sends them: only names and annotations are decoded."""
    filler = {"images": [{"names": ["x" * 10_000]}]}
    nodes = [{"metadata": {"name": f"new-{number}"}, "status": filler} for number in range(5000)]
    body = msgspec.json.encode({"pod": pod("web"), "nodes": {"items": nodes}})
    assert len(body) > 50_000_000
    status, answer = await site.post("/filter", body)
    assert status == 200
    assert len(answer["nodes"]["items"]) == 5000
    assert await site.serves()


async def test_a_larger_body_is_rejected_with_the_limit(site: Site) -> None:
    """One byte more, sent to any verb."""
    for path in sorted(PATHS):
        status, text = await site.post(path, b" " * (LARGEST_MIB * 2**20 + 1))
        assert status == 413
        assert str(LARGEST_MIB * 2**20) in str(text)
    assert await site.serves()


async def test_unknown_nodes_pods_and_uids_get_an_error_message(site: Site) -> None:
    """None of them is an internal error."""
    body = msgspec.json.encode({"pod": pod("a", memory=600), "nodenames": ["ghost"]})
    assert await site.post("/filter", body) == (
        200,
        {"nodenames": [], "failedAndUnresolvableNodes": {"ghost": "NodeUnregistered"}},
    )
    good = {"PodName": "a", "PodNamespace": "default", "PodUID": "uid-a", "Node": "n1"}
    for change, expected in (
        ({"Node": "ghost"}, "the cluster has no node ghost"),
        ({"PodName": "ghost"}, "pod default/ghost does not exist"),
        ({"PodUID": "other"}, "its UID is uid-a, not other"),
    ):
        status, answer = await site.post("/bind", msgspec.json.encode({**good, **change}))
        assert status == 200
        assert expected in answer["error"]
    assert site.api.written == []
    assert await site.post("/bind", msgspec.json.encode(good)) == (200, {"error": ""})
    assert len(site.api.written) == 1


async def test_a_replica_that_does_not_lead_says_so(site: Site) -> None:
    """Without a term, or with an expired Lease, it returns an error, and kube-scheduler tries again."""
    for verbs in (None, extending(site.state, site.api, trusted=False)):
        site.verbs = verbs
        for path in ("/filter", "/bind"):
            status, answer = await site.post(path, GOOD)
            assert status == 200
            assert "does not lead" in answer["error"]
        for path in ("/prioritize", "/preempt"):
            assert (await site.post(path, GOOD))[0] == 503


@pytest.mark.parametrize(
    ("method", "path"),
    [
        ("GET", "/gpus"),
        ("PUT", "/gpus/assignments/bulk"),
        ("POST", "/gpus/0/mode"),
        ("POST", "/gpus/0/assign"),
        ("POST", "/gpus/0/unassign"),
    ],
)
async def test_removed_routes_are_not_found(site: Site, method: str, path: str) -> None:
    """GPUBinding's old HTTP API."""
    async with aiohttp.ClientSession() as session, session.request(method, site.url + path) as answer:
        assert answer.status == 404
