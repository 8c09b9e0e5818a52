"""Numbers over HTTP: tokens are reviewed whoever calls, and callers have to be able to write the annotation."""

from __future__ import annotations

from types import SimpleNamespace
from typing import TYPE_CHECKING, Any, cast

import aiohttp
import msgspec
import pytest
from aiohttp.test_utils import unused_port

from allocation.names import HOST_PORT, INDEX
from allocation.settings import AllocationSettings
from cluster.configuration import ClusterSettings, Configuration
from cluster.events import Recorder
from cluster.http.listener import listening
from scheduler import servers
from scheduler.api.access_reviews import AccessReviews
from scheduler.api.assignment_document import ASSIGN_HOST_PORT, ASSIGN_INDEX
from scheduler.api.assignment_routes import assignment_routes
from scheduler.api.health import application
from scheduler.api.namespaced.gate import NamespaceGate
from scheduler.api.openapi import document
from scheduler.api.token_reviews import TokenReviews
from scheduler.assignment_settings import AssignmentSettings
from scheduler.assignments import Assignments
from scheduler.metrics.instruments import Metrics
from scheduler.settings import NamespaceApiSettings, SchedulerSettings
from tests.scheduler.support.builders import pod
from tests.scheduler.support.extending import Bindings
from tests.scheduler.support.terms import NAMESPACE, Cluster, leading
from webhook.settings import WebhookSettings

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

    from cluster.api import Api
    from scheduler.leader import Leader
    from scheduler.objects import Pod


class Reviewing(Bindings):
    """An API server whose tokens are usernames; `editor` may patch pods in namespace team."""

    async def request(self, method: str, path: str, **how: Any) -> bytes:
        """Review a token or a right."""
        if "reviews" not in path:
            return await super().request(method, path, **how)
        spec = how["body"]["spec"]
        if "token" in spec:
            is_known = spec["token"] in {"editor", "viewer"}
            return msgspec.json.encode(
                {"status": {"authenticated": is_known, "user": {"username": spec["token"]} if is_known else {}}}
            )
        attributes = spec["resourceAttributes"]
        asked = (spec["user"], attributes["verb"], attributes["namespace"])
        return msgspec.json.encode({"status": {"allowed": asked == ("editor", "patch", "team")}})


class Site:
    """A listener with the routes of a leader, which a test may end the term of."""

    def __init__(self) -> None:
        self.numbers = Assignments(ports=(40000, 40002), most_per_namespace=9)
        self.pods: dict[tuple[str, str], Pod] = {}
        self.leads = True
        self.url = ""
        for name in "abc":
            self.create(name)

    def create(self, name: str, **more: Any) -> None:
        """Create a pod in namespace team."""
        self.pods[name, "team"] = pod(name, namespace="team", **more)
        self.numbers.set_pod(self.pods[name, "team"])

    async def ask(self, method: str, path: str, *, token: str = "editor", **how: Any) -> tuple[int, Any]:  # noqa: S107
        """Send a request; return status and body."""
        headers = {"Authorization": f"Bearer {token}"} if token else {}
        async with (
            aiohttp.ClientSession() as session,
            session.request(method, self.url + path, headers=headers, **how) as response,
        ):
            return response.status, await response.json()

    async def port(self, name: str, **how: Any) -> tuple[int, Any]:
        """Ask for the port of a pod."""
        return await self.ask("POST", ASSIGN_HOST_PORT, json={"namespace": "team", "pod": name}, **how)

    async def index(self, name: str, **how: Any) -> tuple[int, Any]:
        """Ask for the index of a pod."""
        return await self.ask("GET", f"{ASSIGN_INDEX}?namespace=team&pod={name}", **how)


@pytest.fixture
def cluster() -> Cluster:
    """Return a cluster without nodes."""
    return Cluster()


@pytest.fixture
async def site() -> AsyncIterator[Site]:
    """Serve the routes on loopback, without TLS."""
    made, api = Site(), Reviewing()
    gate = NamespaceGate(TokenReviews(api), AccessReviews(api))

    def find(name: str, namespace: str) -> Pod | None:
        return made.pods.get((name, namespace))

    routes = assignment_routes(lambda: (made.numbers, find) if made.leads else None, gate=gate)
    async with listening(application(routes), host="127.0.0.1", port=0) as port:
        made.url = f"http://127.0.0.1:{port}"
        yield made


async def test_a_pod_gets_a_number_and_the_annotation_for_it(site: Site) -> None:
    """The same each time, and another pod another one."""
    expected = {"namespace": "team", "pod": "a", "number": 40000, "annotation": HOST_PORT}
    assert [await site.port("a") for _ in range(2)] == [(200, expected)] * 2
    assert (await site.port("b"))[1]["number"] == 40001
    status, answer = await site.index("a")
    assert (status, answer["number"], answer["annotation"]) == (200, 1, INDEX)


async def test_every_caller_needs_a_token_that_is_accepted(site: Site) -> None:
    """Also on loopback, where the rest of the API trusts its callers; and the right to write the annotation."""
    for ask in (site.port, site.index):
        assert (await ask("a", token=""))[0] == 401
        assert (await ask("a", token="stranger"))[0] == 401  # noqa: S106
        status, answer = await ask("a", token="viewer")  # noqa: S106
        assert status == 403
        assert "cannot patch pods in namespace team" in answer["error"]
        assert "(edit does)" in answer["error"]
    assert site.numbers.ports.of(site.pods["a", "team"]) is None


async def test_what_cannot_be_assigned_is_said(site: Site) -> None:
    """A pod that does not exist or has ended, a body that is not one, numbers that are all taken."""
    site.create("ended", phase="Succeeded")
    assert (await site.port("ended"))[0] == (await site.index("unknown"))[0] == 404
    for body in (b"", b"{", b'{"namespace":"team"}', b'{"namespace":"team","pod":""}', b'{"pod":"a","x":1}'):
        assert (await site.ask("POST", ASSIGN_HOST_PORT, data=body))[0] == 400
    assert (await site.ask("GET", f"{ASSIGN_INDEX}?namespace=team"))[0] == 400
    assert (await site.ask("POST", ASSIGN_HOST_PORT, data=b"x" * 5000))[0] == 413
    assert [(await site.port(name))[0] for name in "abc"] == [200, 200, 409]
    site.leads = False
    assert (await site.port("a", token=""))[0] == 503


async def test_every_response_is_described(site: Site) -> None:
    """The document has both paths with the statuses that they return."""
    paths = document()["paths"]
    described = {*paths[ASSIGN_INDEX]["get"]["responses"]} & {*paths[ASSIGN_HOST_PORT]["post"]["responses"]}
    assert {"200", "400", "401", "403", "404", "409", "429", "503"} <= described
    assert "413" in paths[ASSIGN_HOST_PORT]["post"]["responses"]
    assert site.leads


@pytest.mark.parametrize(("range_", "status"), [("40000-40001", 200), ("", 404)])
async def test_the_process_serves_them_with_tls_if_they_are_switched_on(range_: str, status: int) -> None:
    """On the port for users with rights in one namespace, because callers send tokens."""
    port, site = unused_port(), Site()
    own = SchedulerSettings(
        port=0,
        namespace_api=NamespaceApiSettings(host="127.0.0.1", port=port),
        assignments=AssignmentSettings(port_range=range_),
    )
    configuration = Configuration(ClusterSettings(), AllocationSettings(), own, {"webhook": WebhookSettings()})
    term = SimpleNamespace(assignments=(site.numbers, lambda name, namespace: site.pods.get((name, namespace))))
    leader = cast("Leader", SimpleNamespace(unready="", deciding=term))
    url, body = f"https://127.0.0.1:{port}{ASSIGN_HOST_PORT}", {"namespace": "team", "pod": "a"}
    api = Reviewing()
    recorder = Recorder(cast("Api", api), component="test", instance="test")
    async with (
        servers.serving(configuration, api=api, leader=leader, metrics=Metrics(), recorder=recorder),
        aiohttp.ClientSession() as session,
        session.post(url, json=body, headers={"Authorization": "Bearer editor"}, ssl=False) as response,
    ):
        assert response.status == status


async def test_a_term_knows_the_numbers_of_its_pods(cluster: Cluster) -> None:
    """Those that are there when it begins, and those that are created later."""
    cluster.pod("old", annotations={HOST_PORT: "40001"})
    async with leading(cluster, assignments=AssignmentSettings(port_range="40000-40001")):
        assert cluster.term.assignments is not None
        numbers, find = cluster.term.assignments
        old = find("old", NAMESPACE)
        assert old is not None
        assert numbers.ports.of(old) == 40001
        cluster.pod("new")
        await cluster.until(lambda: find("new", NAMESPACE) is not None, "new pod")
        new = find("new", NAMESPACE)
        assert new is not None
        assert numbers.ports.assign(new) == 40000
