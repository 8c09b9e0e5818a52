"""The API over real HTTP: every path, every documented answer, and nothing that changes by asking."""

from collections.abc import AsyncIterator
from functools import partial
from pathlib import Path
from typing import Any

import aiohttp
import jsonschema
import msgspec
import pytest
import yaml
from aiohttp import web

from allocation.card_table import MEMORY
from allocation.settings import AllocationSettings
from cluster.listener import listening
from scheduler import openapi
from scheduler.callers import Callers, guarding
from scheduler.cycle import Chosen, decide
from scheduler.inquiry import Inquiry
from scheduler.inquiry_routes import INQUIRY_PATHS, inquiry_routes
from scheduler.server import application
from scheduler.settings import SchedulerSettings, ServingSettings
from scheduler.simulation_api import Simulation
from scheduler.submission import LARGEST_MANIFEST
from tests.scheduler.builders import allocated, namespace, pod, state
from tests.scheduler.extending import Bindings, extending
from tests.scheduler.test_explanation import everything
from tests.scheduler.worlds import World, bound
from webhook import rehearsal
from webhook.settings import WebhookSettings

DOCUMENT = openapi.document()
ADMIT = partial(rehearsal.rehearse, allocation=AllocationSettings(), settings=WebhookSettings())
EXPLAIN, SIMULATE, ALLOCATION = openapi.EXPLAIN, openapi.SIMULATE, openapi.ALLOCATION


def manifest(memory: int | str, **more: Any) -> dict[str, Any]:
    """Answer a pod as a user writes it, without a word of ours."""
    limits = {"nvidia.com/gpu": 1, "nvidia.com/gpumem": memory}
    container = {"name": "main", "image": "x", "resources": {"limits": limits}}
    spec = {"containers": [container], "nodeSelector": None, **more}
    return {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "asks", "namespace": "team"}, "spec": spec}


class Site:
    """A listener with the API, as the process has it."""

    def __init__(self, serving: ServingSettings | None = None, *, is_open: bool = True) -> None:
        self.state = state("n1", "n2")
        self.state.set_namespace(namespace("team", **{"gpu.scheduling/injection": "enabled"}))
        self.state.set_namespace(namespace("plain"))
        self.api = Bindings()
        self.pods = extending(self.state, self.api)._pods
        self.decides = True
        self.url = ""
        routes = inquiry_routes(
            lambda: Inquiry(self.state, self.pods) if self.decides else None, admit=ADMIT, is_open=is_open
        )
        guard = guarding(Callers(self.api, serving or ServingSettings()), INQUIRY_PATHS)
        self.app: web.Application = application(routes, middlewares=[guard])

    async def ask(self, method: str, path: str, body: Any = None, **names: str) -> tuple[int, Any]:
        """Ask, hold the answer against the document, and return status and what was said."""
        async with (
            aiohttp.ClientSession() as session,
            session.request(method, self.url + path.format(**names), data=body) as answer,
        ):
            text = await answer.read()
        known = DOCUMENT["paths"][path.partition("?")[0]][method.lower()]["responses"]
        content = known[str(answer.status)]["content"][answer.content_type]
        said = msgspec.json.decode(text) if answer.content_type == "application/json" else text.decode()
        jsonschema.Draft202012Validator({**content["schema"], "components": DOCUMENT["components"]}).validate(said)
        return answer.status, said

    async def simulate(self, body: Any, query: str = "") -> tuple[int, Any]:
        """Ask what would become of a pod."""
        return await self.ask("POST", SIMULATE + query, body if isinstance(body, bytes) else msgspec.json.encode(body))


@pytest.fixture
async def site() -> AsyncIterator[Site]:
    """Listen while a test runs."""
    made = Site()
    async with listening(made.app, host="127.0.0.1", port=0) as port:
        made.url = f"http://127.0.0.1:{port}"
        yield made


def test_the_copy_for_readers_is_the_document() -> None:
    """`python -m scheduler.openapi > docs/openapi.yaml` has been run."""
    copy = Path(__file__).parents[2] / "docs" / "openapi.yaml"
    assert copy.read_text(encoding="utf-8") == openapi.text()


async def test_every_path_is_described(site: Site) -> None:
    """The server has what the document says, and nothing else under /api; it serves the document itself."""
    served = {
        (resource.canonical, route.method.lower())
        for resource in site.app.router.resources()
        for route in resource
        if route.method != "HEAD"
    }
    assert served == {(path, method) for path, methods in DOCUMENT["paths"].items() for method in methods}
    assert await site.ask("GET", openapi.OPENAPI) == (200, msgspec.json.decode(msgspec.json.encode(DOCUMENT)))
    for schema in DOCUMENT["components"]["schemas"].values():
        jsonschema.Draft202012Validator.check_schema(schema)


@pytest.mark.parametrize("written", [msgspec.json.encode, lambda made: yaml.safe_dump(made).encode()])
async def test_a_pod_that_fits(site: Site, written: Any) -> None:
    """As a user writes it, in JSON or YAML: admitted first, then decided, with TensorFusion's keys."""
    status, said = await site.simulate(written(manifest(600)))
    assert status == 200
    assert said["error"] is None
    assert said["scheduleResult"] == {"SuggestedHost": "n1", "EvaluatedNodes": 2, "FeasibleNodes": 2}
    assert said["gpuSchedulerState"]["FinalGPUs"] == ["GPU-n1-0"]
    assert [stage["FilterName"] for stage in said["filterDetail"]["FilterStageDetails"]] == [
        "NodePredicates",
        "GPUCards",
    ]
    assert said["progressiveNodeNames"] is None
    assert said["explanation"]["answer"] == "would go to n1, card 0"
    assert msgspec.convert(said, Simulation) is not None


async def test_a_pod_that_does_not_fit_is_200_too(site: Site) -> None:
    """With the reason of each node, and whether anything but another pod could change it."""
    site.state.set_pod(allocated("runs", node="n1", memory=900, card=0))
    status, said = await site.simulate(manifest(5000))
    assert status == 200
    assert said["scheduleResult"] == {"SuggestedHost": "", "EvaluatedNodes": 0, "FeasibleNodes": 0}
    error = said["error"]
    assert (error["type"], error["numAllNodes"]) == ("FitError", 2)
    assert error["message"] == "no available node, 2 nodes do not meet: 2 nodes 2/2 CardInsufficientMemory(n1,n2)"
    assert error["diagnosis"]["nodeToStatus"]["nodes"]["n2"] == {
        "code": "UnschedulableAndUnresolvable",
        "plugin": "GPUCards",
        "reasons": ["CardInsufficientMemory"],
        "message": "2/2 CardInsufficientMemory",
    }


@pytest.mark.parametrize(
    ("made", "kind", "said"),
    [
        (manifest("10Gi"), "NotAdmitted", "nvidia.com/gpumem"),
        (manifest(1, nodeName="n1"), "NotAdmitted", "pod has node assigned"),
        (manifest(1, resourceClaims=[{"name": "x"}]), "Held", "spec.resourceClaims is not evaluated"),
    ],
)
async def test_what_could_never_be_placed_is_told(site: Site, made: dict[str, Any], kind: str, said: str) -> None:
    """By admission, or by the loop, in their words."""
    status, answer = await site.simulate(made)
    assert status == 200
    assert answer["error"]["type"] == kind
    assert said in answer["error"]["message"]


@pytest.mark.parametrize(
    "body",
    [
        b"",
        b"no pod",
        b"[1]",
        b"{",
        b"\xff\xfe\x00",
        b"a: &a [x]\nb: *a\n",
        b"[" * 50_000,
        b'{"apiVersion":"v1","kind":"Service"}',
        b'{"apiVersion":"v1","kind":"Pod","metadata":[]}',
        b'{"apiVersion":"v1","kind":"Pod","metadata":{"namespace":[]}}',
        b'{"apiVersion":"v1","kind":"Pod","metadata":{"labels":3}}',
        b'{"apiVersion":"v1","kind":"Pod","spec":{"schedulerName":"tranche","priority":"x","containers":[{}]}}',
        b"apiVersion: v1\nkind: Pod\n---\nkind: Pod\n",
    ],
)
async def test_bad_bodies_are_400(site: Site, body: bytes) -> None:
    """In words, and the process serves on."""
    status, said = await site.simulate(body)
    assert status == 400
    assert said["error"]
    assert (await site.simulate(manifest(600)))[0] == 200


async def test_another_schedulers_pod_is_500(site: Site) -> None:
    """In TensorFusion's words: one that names it, and one that admission never sees because nobody opted in."""
    plain = manifest(600)
    plain["metadata"]["namespace"] = "plain"
    for body in (manifest(600, schedulerName="other"), plain):
        assert await site.simulate(body) == (500, {"error": "scheduler framework not found"})


async def test_large_bodies_are_413(site: Site) -> None:
    """One byte more than is read."""
    assert (await site.simulate(b" " * (LARGEST_MANIFEST + 1)))[0] == 413


async def test_an_unknown_namespace_is_taken_as_opted_in(site: Site) -> None:
    """With a warning, as gates are."""
    body = manifest(600, schedulingGates=[{"name": "x"}])
    body["metadata"]["namespace"] = "new"
    _, said = await site.simulate(body)
    assert said["scheduleResult"]["SuggestedHost"] == "n1"
    assert [warning.partition(" ")[0] for warning in said["warnings"]] == ["namespace", "spec.schedulingGates:"]


async def test_explain(site: Site) -> None:
    """A known pod is explained, with the cards of the nodes that are asked for; an unknown one is 404."""
    asks = pod("a", memory=5000)
    site.pods.learn(asks)
    site.state.set_pod(asks)
    status, said = await site.ask("GET", EXPLAIN + "?node=n2", namespace="default", pod="a")
    assert (status, said["outcome"]) == (200, "waits")
    assert [len(node["cards"]) for node in said["nodes"]] == [0, 2]
    assert said["queue"]["place"] == "active"
    assert await site.ask("GET", EXPLAIN, namespace="default", pod="b") == (
        404,
        {"error": "there is no pod default/b"},
    )


async def test_who_does_not_decide_says_503(site: Site) -> None:
    """Each path, with a reason."""
    site.decides = False
    for method, path in (("POST", SIMULATE), ("GET", ALLOCATION), ("GET", EXPLAIN)):
        status, said = await site.ask(method, path, namespace="default", pod="a")
        assert status == 503
        assert "does not decide" in said["error"]


@pytest.mark.parametrize(("serving", "is_open"), [(ServingSettings(), False), (ServingSettings(users=("me",)), True)])
async def test_an_exposed_listener_tells_nothing_to_anybody(serving: ServingSettings, is_open: bool) -> None:  # noqa: FBT001
    """Who does not prove who he is gets 401; where nobody can, all get 403."""
    made = Site(serving, is_open=is_open)
    async with listening(made.app, host="127.0.0.1", port=0) as port:
        made.url = f"http://127.0.0.1:{port}"
        for method, path in (("POST", SIMULATE), ("GET", ALLOCATION), ("GET", EXPLAIN)):
            status, _ = await made.ask(method, path, namespace="default", pod="a")
            assert status == (401 if is_open else 403)


def test_when_a_listener_is_private() -> None:
    """On loopback; elsewhere with TLS and known callers only."""
    tls = {"certificate_file": "c", "key_file": "k"}
    assert SchedulerSettings().is_private
    assert not SchedulerSettings(host="0.0.0.0").is_private  # noqa: S104
    assert not SchedulerSettings(host="::", serving=ServingSettings(users=("me",))).is_private
    assert not SchedulerSettings(host="::", serving=ServingSettings(**tls)).is_private
    assert SchedulerSettings(host="::", serving=ServingSettings(users=("me",), **tls)).is_private


@pytest.mark.parametrize("seed", range(20))
async def test_four_maps_agree(seed: int) -> None:
    """With one another, with the ledger, and with the pods' own annotations, for random fleets."""
    world, known = World(seed), Site()
    known.state = world.state
    known.pods = extending(world.state, Bindings())._pods
    pods = []
    for _ in range(8):
        asks = world.pod()
        world.state.set_pod(asks)
        decision = decide(world.state, asks)
        if isinstance(decision, Chosen):
            pods.append(bound(asks, decision))
            known.pods.learn(pods[-1])
        else:
            world.state.drop_pod(asks)
    async with listening(known.app, host="127.0.0.1", port=0) as port:
        known.url = f"http://127.0.0.1:{port}"
        _, said = await known.ask("GET", ALLOCATION)
    allocations = said["allocation"]
    for each in pods:
        record = each.metadata.annotations.get("gpu.scheduling/allocation")
        if record is None:
            assert str(each) not in allocations
            continue
        wanted = {share["uuid"] for shares in msgspec.json.decode(record)["containers"].values() for share in shares}
        assert {gpu["uuid"] for gpu in allocations[str(each)]["gpus"]} == wanted
        assert str(each) in said["nodeWorkerStore"][each.spec.node_name]
        assert {uuid for uuid, names in said["gpuToWorkerMap"].items() if str(each) in names} == wanted
    for uuid, gpu in said["gpuStore"].items():
        position = world.state.ledger.position(uuid)
        assert position is not None
        used = int(world.state.ledger.used[(MEMORY, *position)])
        assert gpu["memoryMiB"]["total"] - gpu["memoryMiB"]["free"] == used


async def test_asking_over_http_changes_nothing(site: Site) -> None:
    """Nothing is written, and all that the scheduler knows is as before."""
    site.state.set_pod(pod("a", memory=600))
    site.pods.learn(pod("a", memory=600))
    await site.simulate(manifest(600))
    before = everything(site.state)
    for memory in (600, 5000):
        await site.simulate(manifest(memory))
    await site.ask("GET", ALLOCATION)
    await site.ask("GET", EXPLAIN, namespace="default", pod="a")
    assert everything(site.state) == before
    assert site.api.written == []
