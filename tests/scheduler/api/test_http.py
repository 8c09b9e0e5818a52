"""The API over real HTTP: paths and responses conform to the document, and requests change no state."""

import asyncio
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

from allocation.ledger.card_table import MEMORY
from allocation.settings import AllocationSettings
from allocation.steps import finish
from cluster.gpu_quota import GpuQuota
from cluster.http.listener import listening
from scheduler.api import openapi
from scheduler.api.authentication import Authenticator, require_caller
from scheduler.api.health import application
from scheduler.api.namespaced.paths import CLUSTER_USAGE, VERSION
from scheduler.api.queries import Queries
from scheduler.api.request_body import LARGEST_BODY
from scheduler.api.routes import API_PATHS, api_routes
from scheduler.api.simulation_types import Simulation
from scheduler.cycle.result import Scheduled
from scheduler.serving_settings import ServingSettings
from scheduler.settings import SchedulerSettings
from tests.scheduler.api.test_explanation import everything
from tests.scheduler.support.builders import allocated, namespace, pod, state
from tests.scheduler.support.claims import claim as gpu_claim
from tests.scheduler.support.claims import manifest as gpu_claim_manifest
from tests.scheduler.support.claims import running
from tests.scheduler.support.driving import gpu_queue
from tests.scheduler.support.extending import Bindings, extending, pods_of
from tests.scheduler.support.preempting import evictions_of
from tests.scheduler.support.quotas import gpu_quota
from tests.scheduler.support.scheduling import cycle_of, schedule
from tests.scheduler.support.storage import mounts, storage_class, volume
from tests.scheduler.support.worlds import World, bound
from webhook import dry_run
from webhook.settings import WebhookSettings

DOCUMENT = openapi.document()
ADMIT = partial(dry_run.dry_run, allocation=AllocationSettings(), settings=WebhookSettings())
EXPLAIN, SIMULATE, ALLOCATION = openapi.EXPLAIN, openapi.SIMULATE, openapi.ALLOCATION
QUEUES, QUOTAS, GANGS = openapi.QUEUES, openapi.QUOTAS, openapi.GANGS
PATHS = (
    *(("POST", SIMULATE), ("GET", ALLOCATION), ("GET", QUEUES)),
    *(("GET", QUOTAS), ("GET", GANGS), ("GET", EXPLAIN)),
    *(("GET", openapi.CAPACITY), ("POST", openapi.CAPACITY), ("POST", openapi.ADJUST)),
)


def manifest(memory: int | str, **more: Any) -> dict[str, Any]:
    """Return a pod as a user writes it, without our scheduler name and annotations."""
    limits = {"nvidia.com/gpu": 1, "nvidia.com/gpumem": memory}
    container = {"name": "main", "image": "x", "resources": {"limits": limits}}
    spec = {"containers": [container], "nodeSelector": None, **more}
    return {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "submitted", "namespace": "team"}, "spec": spec}


class Site:
    """The API with its state, to be served as the process serves it."""

    def __init__(self, serving: ServingSettings | None = None, *, is_open: bool = True) -> None:
        self.state = state("n1", "n2")
        self.state.limits.set_namespace(namespace("team", **{"gpu.scheduling/injection": "enabled"}))
        self.state.limits.set_namespace(namespace("plain"))
        self.api = Bindings()
        self.pods = pods_of(extending(self.state, self.api))
        self.decides = True
        self.url = ""
        routes = api_routes(
            lambda: Queries(cycle_of(self.state), evictions_of(self.state), self.pods) if self.decides else None,
            admit=ADMIT,
            is_open=is_open,
        )
        guard = require_caller(Authenticator(self.api, serving or ServingSettings()), API_PATHS)
        self.app: web.Application = application(routes, middlewares=[guard])

    async def send(self, method: str, path: str, body: Any = None, **names: str) -> tuple[int, Any]:
        """Send a request, validate the response by the document, and return its status and content."""
        async with (
            aiohttp.ClientSession() as session,
            session.request(method, self.url + path.format(**names), data=body) as response,
        ):
            text = await response.read()
        documented = DOCUMENT["paths"][path.partition("?")[0]][method.lower()]["responses"]
        schema = documented[str(response.status)]["content"][response.content_type]["schema"]
        content = msgspec.json.decode(text) if response.content_type == "application/json" else text.decode()
        jsonschema.Draft202012Validator({**schema, "components": DOCUMENT["components"]}).validate(content)
        return response.status, content

    async def simulate(self, body: Any, query: str = "") -> tuple[int, Any]:
        """Simulate a pod."""
        return await self.send("POST", SIMULATE + query, body if isinstance(body, bytes) else msgspec.json.encode(body))


@pytest.fixture
async def site() -> AsyncIterator[Site]:
    """Serve the API while the test runs."""
    site = Site()
    async with listening(site.app, host="127.0.0.1", port=0) as port:
        site.url = f"http://127.0.0.1:{port}"
        yield site


def test_the_published_document_is_current() -> None:
    """`python -m scheduler.api.openapi > docs/openapi.yaml` has been run."""
    published = Path(__file__).parents[3] / "docs" / "openapi.yaml"
    assert published.read_text(encoding="utf-8") == openapi.text()


async def test_every_path_is_described(site: Site) -> None:
    """The document lists exactly the paths that are served; one of them is the document itself."""
    served = {
        (resource.canonical, route.method.lower())
        for resource in site.app.router.resources()
        for route in resource
        if route.method != "HEAD"
    }
    described = {(path, method) for path, methods in DOCUMENT["paths"].items() for method in methods}
    # Another listener has the rest, see test_assignments.py and namespaced/test_http.py.
    assert served == {
        each
        for each in described
        if not each[0].startswith(("/api/namespaces/", "/api/assign-", CLUSTER_USAGE, VERSION))
    }
    assert await site.send("GET", openapi.OPENAPI) == (200, msgspec.json.decode(msgspec.json.encode(DOCUMENT)))
    for schema in DOCUMENT["components"]["schemas"].values():
        jsonschema.Draft202012Validator.check_schema(schema)


@pytest.mark.parametrize("written", [msgspec.json.encode, lambda made: yaml.safe_dump(made).encode()])
async def test_a_fitting_pod_is_simulated_with_node_and_cards(site: Site, written: Any) -> None:
    """The pod, in JSON or YAML, is first admitted and then evaluated; the response has TensorFusion's keys."""
    status, content = await site.simulate(written(manifest(600)))
    assert status == 200
    assert content["error"] is None
    assert content["scheduleResult"] == {"SuggestedHost": "n1", "EvaluatedNodes": 2, "FeasibleNodes": 2}
    assert content["gpuSchedulerState"]["FinalGPUs"] == ["GPU-n1-0"]
    assert [stage["FilterName"] for stage in content["filterDetail"]["FilterStageDetails"]] == [
        "NodePredicates",
        "GPUCards",
    ]
    assert content["progressiveNodeNames"] is None
    assert content["explanation"]["answer"] == "would go to n1, card 0"
    assert msgspec.convert(content, Simulation) is not None


async def test_a_pod_that_does_not_fit_is_200_with_the_reasons(site: Site) -> None:
    """The response has the reason of each node, and whether it is resolvable."""
    site.state.set_pod(allocated("runs", node="n1", memory=900, card=0))
    status, content = await site.simulate(manifest(5000))
    assert status == 200
    assert content["scheduleResult"] == {"SuggestedHost": "", "EvaluatedNodes": 0, "FeasibleNodes": 0}
    error = content["error"]
    assert (error["type"], error["numAllNodes"]) == ("FitError", 2)
    assert error["message"].startswith(
        "no available node, 2 nodes do not meet: 2 nodes 2/2 CardInsufficientMemory(n1,n2); container main asks for"
    )
    assert error["diagnosis"]["nodeToStatus"]["nodes"]["n2"] == {
        "code": "UnschedulableAndUnresolvable",
        "plugin": "GPUCards",
        "reasons": ["CardInsufficientMemory"],
        "message": "2/2 CardInsufficientMemory",
    }


@pytest.mark.parametrize(
    ("submitted", "kind", "text"),
    [
        (manifest("10Gi"), "NotAdmitted", "nvidia.com/gpumem"),
        (manifest(1, nodeName="n1"), "NotAdmitted", "pod has node assigned"),
        (manifest(1, resourceClaims=[{"name": "x"}]), "Held", "spec.resourceClaims is not evaluated"),
    ],
)
async def test_a_pod_that_can_never_be_scheduled_is_200_with_the_reason(
    site: Site, submitted: dict[str, Any], kind: str, text: str
) -> None:
    """The message is that of admission or of the loop."""
    status, content = await site.simulate(submitted)
    assert status == 200
    assert content["error"]["type"] == kind
    assert text in content["error"]["message"]


async def test_another_size_of_a_pod_is_answered_and_never_given(site: Site) -> None:
    """For autoscalers: whether it fits, and what is left of the card; other bodies are refused with the form."""
    runs = allocated("runs", node="n1", memory=300, card=0)
    site.pods.add_if_new(runs)
    site.state.set_pod(runs)
    used = site.state.ledger.used.copy()

    async def adjust(body: bytes) -> tuple[int, Any]:
        return await site.send("POST", openapi.ADJUST, body)

    def asked(memory: int, *, pod: str = "runs") -> bytes:
        question = {"namespace": runs.metadata.namespace, "pod": pod, "resize": {"main": {"gpumem": memory}}}
        return msgspec.json.encode(question)

    status, fits = await adjust(asked(900))
    assert (status, fits["fits"], fits["remaining"]["GPU-n1-0"]["memoryMiB"]) == (200, True, 100)
    status, refused = await adjust(asked(1001))
    assert (status, refused["fits"], refused["reason"]) == (200, False, "ScalingQuotaExceeded")
    assert refused["remaining"]["GPU-n1-0"]["memoryMiB"] == 700
    assert (await adjust(asked(1, pod="gone")))[0] == 404
    for body in (b"{", b"[]", asked(0), b'{"namespace":"team","pod":"runs"}'):
        status, content = await adjust(body)
        assert status == 400
        assert "the body must be" in content["error"]
    assert (await adjust(b" " * (LARGEST_BODY + 1)))[0] == 413
    assert (site.state.ledger.used == used).all()


async def test_a_simulated_pod_gets_the_defaults_of_its_namespace_and_obeys_its_quotas(site: Site) -> None:
    """Without the default it would be a pod that needs a whole card."""
    single = {"maxCards": 1, "defaults": {"nvidia.com/gpumem": 300}}
    quota = {"metadata": {"name": "small", "namespace": "team"}, "spec": {"single": single}}
    site.state.limits.set_gpu_quota(msgspec.convert(quota, GpuQuota))
    for node in ("n1", "n2"):
        for card in (0, 1):
            site.state.set_pod(allocated(f"runs-{node}-{card}", node=node, memory=600, card=card))
    made = manifest(600)
    limits = made["spec"]["containers"][0]["resources"]["limits"]
    del limits["nvidia.com/gpumem"]
    _, content = await site.simulate(made)
    assert content["error"] is None
    assert content["scheduleResult"]["SuggestedHost"]
    limits["nvidia.com/gpu"] = 2
    _, content = await site.simulate(made)
    assert content["error"]["type"] == "NotAdmitted"
    assert "GpuQuota small: spec.single.maxCards is 1, and the pod requests 2" in content["error"]["message"]


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
    """The response has a message, and the server continues."""
    status, content = await site.simulate(body)
    assert status == 400
    assert content["error"]
    assert (await site.simulate(manifest(600)))[0] == 200


async def test_claims_are_sent_with_the_pod_in_a_list(site: Site) -> None:
    """In YAML, too; administrators see which volume a claim would get."""
    site.state.storage.set_class(storage_class())
    site.state.storage.set_volume(volume("pv", node="n2"))
    spec = {
        "accessModes": ["ReadWriteOnce"],
        "storageClassName": "local",
        "resources": {"requests": {"storage": "10Gi"}},
    }
    claim = {"apiVersion": "v1", "kind": "PersistentVolumeClaim", "metadata": {"name": "data"}, "spec": spec}
    body = {"apiVersion": "v1", "kind": "List", "items": [claim, manifest(600, volumes=mounts("data"))]}
    status, content = await site.simulate(yaml.safe_dump(body).encode())
    assert (status, content["scheduleResult"]["SuggestedHost"]) == (200, "n2")
    (shown,) = content["explanation"]["claims"]
    assert (shown["name"], shown["volume"], shown["exists"]) == ("data", "pv", False)
    spec["accessModes"] = []
    status, content = await site.simulate(body)
    assert (status, "spec.accessModes holds nothing" in content["error"]) == (400, True)


def claim_pod(name: str = "single") -> dict[str, Any]:
    """Return a pod as a user writes it, which requests its card by a claim only."""
    made = manifest(1)
    made["metadata"]["annotations"] = {"gpu.scheduling/claim": name}
    made["spec"]["containers"] = [{"name": "main", "image": "x"}]
    return made


async def test_a_gpu_claim_that_exists_gives_the_pod_its_cards(site: Site) -> None:
    """Admission prepares the pod for it; a claim that is sent with the pod counts less than the one that exists."""
    site.state.set_claim(gpu_claim("single", namespace="team"))
    other = gpu_claim_manifest("single", exclusivity="Shared")
    for body in (claim_pod(), {"apiVersion": "v1", "kind": "List", "items": [claim_pod(), other]}):
        _, content = await site.simulate(body)
        assert content["error"] is None
        shown = content["explanation"]
        assert shown["claim"] == {"name": "single", "exclusivity": "Exclusive", "exists": True, "profile": ""}
        assert [(share["container"], share["memoryMiB"], share["cores"]) for share in shown["shares"]] == [
            ("main", 1000, 1000)
        ]


async def test_a_gpu_claim_is_sent_with_the_pod_in_a_list(site: Site) -> None:
    """It is not created, so the next pod without it is refused, with the remedy."""
    planned = gpu_claim_manifest("single", exclusivity="Shared", memoryMiB=200)
    before = everything(site.state)
    for _ in range(2):
        _, content = await site.simulate({"apiVersion": "v1", "kind": "List", "items": [planned, claim_pod()]})
        shown = content["explanation"]
        assert (shown["outcome"], shown["claim"]["exists"], shown["claim"]["exclusivity"]) == ("fits", False, "Shared")
        assert shown["asks"][0]["memoryMiB"] == 200
        assert everything(site.state) == before
        _, alone = await site.simulate(claim_pod())
        assert alone["error"]["type"] == "NotAdmitted"
        assert "GpuClaim single does not exist in namespace team: create it" in alone["error"]["message"]


async def test_a_pod_that_is_not_reviewed_waits_for_its_gpu_claim(site: Site) -> None:
    """Admission never sees the pod; no node is evaluated before the scheduler knows what the pod requests."""
    made = claim_pod("gone")
    made["metadata"]["namespace"] = "plain"
    made["spec"]["schedulerName"] = "tranche"
    made["spec"]["containers"] = manifest(10)["spec"]["containers"]
    _, content = await site.simulate(made)
    error = content["error"]
    assert (error["type"], error["message"]) == ("FitError", error["diagnosis"]["preFilterMsg"])
    assert error["message"].startswith("GpuClaimNotFound: GpuClaim gone does not exist")
    assert (error["diagnosis"]["nodeToStatus"]["nodes"], "numAllNodes" in error) == ({}, False)


async def test_another_schedulers_pod_is_500(site: Site) -> None:
    """The pod names another scheduler, or its namespace is not opted in. The message is TensorFusion's."""
    plain = manifest(600)
    plain["metadata"]["namespace"] = "plain"
    for body in (manifest(600, schedulerName="other"), plain):
        assert await site.simulate(body) == (500, {"error": "scheduler framework not found"})


async def test_large_bodies_are_413(site: Site) -> None:
    """The body has one byte more than the limit."""
    assert (await site.simulate(b" " * (LARGEST_BODY + 1)))[0] == 413


async def test_an_unknown_namespace_is_assumed_to_be_opted_in(site: Site) -> None:
    """The response has a warning, and another one for scheduling gates."""
    body = manifest(600, schedulingGates=[{"name": "x"}])
    body["metadata"]["namespace"] = "new"
    _, content = await site.simulate(body)
    assert content["scheduleResult"]["SuggestedHost"] == "n1"
    assert [warning.partition(" ")[0] for warning in content["warnings"]] == ["namespace", "spec.schedulingGates:"]


async def test_explain_returns_cards_of_requested_nodes_and_404_for_unknown_pods(site: Site) -> None:
    """The parameter `node` limits the cards of the explanation; an unknown pod is 404."""
    pending = pod("a", memory=5000)
    site.pods.add_if_new(pending)
    site.state.set_pod(pending)
    status, content = await site.send("GET", EXPLAIN + "?node=n2", namespace="default", pod="a")
    assert (status, content["outcome"]) == (200, "waits")
    assert [len(node["cards"]) for node in content["nodes"]] == [0, 2]
    assert content["queue"]["place"] == "active"
    assert await site.send("GET", EXPLAIN, namespace="default", pod="b") == (
        404,
        {"error": "pod default/b does not exist"},
    )


async def test_a_replica_that_does_not_decide_responds_503(site: Site) -> None:
    """Each path does, with the reason."""
    site.decides = False
    for method, path in PATHS:
        status, content = await site.send(method, path, namespace="default", pod="a")
        assert status == 503
        assert "does not decide" in content["error"]


@pytest.mark.parametrize(("serving", "is_open"), [(ServingSettings(), False), (ServingSettings(users=("me",)), True)])
async def test_an_exposed_listener_refuses_unauthenticated_callers(serving: ServingSettings, is_open: bool) -> None:  # noqa: FBT001
    """Unauthenticated callers get 401; without settings to authenticate callers, all get 403."""
    exposed = Site(serving, is_open=is_open)
    async with listening(exposed.app, host="127.0.0.1", port=0) as port:
        exposed.url = f"http://127.0.0.1:{port}"
        for method, path in PATHS:
            status, _ = await exposed.send(method, path, namespace="default", pod="a")
            assert status == (401 if is_open else 403)


def test_a_listener_is_private_on_loopback_or_with_authenticated_tls() -> None:
    """Beyond loopback it needs both TLS and settings to authenticate callers."""
    tls = {"certificate_file": "c", "key_file": "k"}
    assert SchedulerSettings().is_private
    assert not SchedulerSettings(host="0.0.0.0").is_private  # noqa: S104
    assert not SchedulerSettings(host="::", serving=ServingSettings(users=("me",))).is_private
    assert not SchedulerSettings(host="::", serving=ServingSettings(**tls)).is_private
    assert SchedulerSettings(host="::", serving=ServingSettings(users=("me",), **tls)).is_private


@pytest.mark.parametrize("seed", range(20))
async def test_the_maps_of_the_allocation_agree(seed: int) -> None:
    """The maps agree with each other, the ledger and the annotations of the pods, for random fleets."""
    world, site = World(seed), Site()
    site.state = world.state
    site.pods = pods_of(extending(world.state, Bindings()))
    pods = []
    for _ in range(8):
        pending = world.pod()
        world.state.set_pod(pending)
        decision = finish(schedule(world.state, pending))
        if isinstance(decision, Scheduled):
            pods.append(bound(pending, decision))
            site.pods.add_if_new(pods[-1])
        else:
            world.state.drop_pod(pending)
    async with listening(site.app, host="127.0.0.1", port=0) as port:
        site.url = f"http://127.0.0.1:{port}"
        _, content = await site.send("GET", ALLOCATION)
    allocations = content["allocation"]
    for each in pods:
        record = each.metadata.annotations.get("gpu.scheduling/allocation")
        if record is None:
            assert str(each) not in allocations
            continue
        expected = {share["uuid"] for shares in msgspec.json.decode(record)["containers"].values() for share in shares}
        assert {gpu["uuid"] for gpu in allocations[str(each)]["gpus"]} == expected
        assert str(each) in content["nodeWorkerStore"][each.spec.node_name]
        assert {uuid for uuid, names in content["gpuToWorkerMap"].items() if str(each) in names} == expected
    for uuid, gpu in content["gpuStore"].items():
        position = world.state.ledger.position(uuid)
        assert position is not None
        used = int(world.state.ledger.used[(MEMORY, *position)])
        assert gpu["memoryMiB"]["total"] - gpu["memoryMiB"]["free"] == used


async def test_the_allocation_shows_which_cards_a_pod_has_alone(site: Site) -> None:
    """The containers of a claim count as one, and its card has nothing free."""
    for name, claimed in (("alone", gpu_claim("a")), ("shares", gpu_claim("b", exclusivity="Shared", memoryMiB=100))):
        card = 0 if name == "alone" else 1
        made = running(name, claimed, node="n1", cards=(card,), containers=("main", "side"))
        site.state.set_pod(made)
        site.pods.add_if_new(made)
    _, content = await site.send("GET", ALLOCATION)
    (alone,) = content["allocation"]["default/alone"]["gpus"]
    assert alone == {"uuid": "GPU-n1-0", "memoryMiB": 1000, "cores": 1000, "slots": 1, "whole": True}
    (shares,) = content["allocation"]["default/shares"]["gpus"]
    assert shares == {"uuid": "GPU-n1-1", "memoryMiB": 100, "cores": 0, "slots": 1, "whole": False}
    assert [content["gpuStore"][each]["slots"]["free"] for each in ("GPU-n1-0", "GPU-n1-1")] == [0, 3]


async def test_the_queues_and_the_queue_of_a_pod_are_returned(site: Site) -> None:
    """The names are those of the document; a share that is not a number would not be JSON."""
    site.state.limits.set_queue(gpu_queue("team-a", weight=3, maxInstances=5))
    pending = pod("a", memory=600, labels={"gpu.scheduling/queue": "team-a"})
    site.state.set_pod(pending)
    site.pods.add_if_new(pending)
    status, content = await site.send("GET", QUEUES)
    assert (status, content["fairSharing"]) == (200, True)
    (queue,) = content["queues"]
    assert (queue["name"], queue["maxInstances"], queue["weightedShare"]) == ("team-a", 5, 0.0)
    assert (queue["underused"], queue["waiting"], queue["next"]) == (True, 1, ["default/a"])
    _, content = await site.send("GET", EXPLAIN, namespace="default", pod="a")
    assert content["gpuQueue"]["name"] == "team-a"
    assert (content["gpuQueue"]["rank"], content["gpuQueue"]["waiting"]) == (1, 1)


async def test_the_quotas_are_returned(site: Site) -> None:
    """The names are those of the document."""
    site.state.limits.set_gpu_quota(gpu_quota("q", namespace="team", total={"maxPods": 4}, single={"maxCards": 1}))
    status, content = await site.send("GET", QUOTAS)
    (quota,) = content["quotas"]
    assert (status, quota["kind"], quota["namespace"], quota["alertThresholdPercent"]) == (200, "GpuQuota", "team", 95)
    assert quota["limits"] == [
        {"resource": "pods", "used": 0, "limit": 4, "availablePercent": "100.00", "nearlyFull": False}
    ]
    assert quota["single"] == {"limits": {}, "maxCards": 1, "defaults": {}}


async def test_the_gangs_are_returned_without_the_middle_of_a_decision(site: Site) -> None:
    """The names are those of the document; a request waits while a decision about a gang is made."""
    keys = {"gpu.scheduling/gang-min-members": "2", "gpu.scheduling/gang-timeout": "60s"}
    for name, where in (("a", "team"), ("b", "other")):
        site.state.set_pod(pod(name, memory=9, namespace=where, labels={"gpu.scheduling/gang": "g"}, annotations=keys))
    status, content = await site.send("GET", GANGS)
    assert (status, content["next"]) == (200, "")
    assert [(each["namespace"], each["state"], each["members"]) for each in content["gangs"]] == [
        ("other", "Incomplete", []),
        ("team", "Incomplete", []),
    ]
    _, content = await site.send("GET", GANGS + "?namespace=team&name=g")
    (gang,) = content["gangs"]
    assert (gang["timeoutSeconds"], gang["pauseSeconds"], gang["waitingSince"]) == (60.0, 0.0, "2026-01-01T00:00:00Z")
    assert [each["pod"] for each in gang["members"]] == ["a"]
    _, content = await site.send("GET", GANGS + "?after=other/g")
    assert [each["namespace"] for each in content["gangs"]] == ["team"]
    async with site.state.turn:
        asking = asyncio.create_task(site.send("GET", GANGS))
        await asyncio.sleep(0.1)
        assert not asking.done()
    assert (await asking)[0] == 200


async def test_the_explanation_of_a_pod_says_whether_its_gang_fits(site: Site) -> None:
    """By a rehearsal, which leaves everything as it was, and takes its turn among decisions."""
    for index in range(6):
        keys = {"gpu.scheduling/gang-min-members": "6"}
        made = pod(f"m{index}", memory=1000, labels={"gpu.scheduling/gang": "g"}, annotations=keys)
        site.state.set_pod(made)
        site.pods.add_if_new(made)
    before = everything(site.state)
    async with site.state.turn:
        asking = asyncio.create_task(site.send("GET", EXPLAIN, namespace="default", pod="m0"))
        await asyncio.sleep(0.1)
        assert not asking.done()
    _, content = await asking
    assert (content["outcome"], content["gang"]["fitting"], content["gang"]["pod"]) == ("waits", 4, "m4")
    assert content["gang"]["why"].startswith("no available node")
    after = everything(site.state)
    assert {**after, "changes": 0, "used": 0} == {**before, "changes": 0, "used": 0}


async def test_http_requests_change_no_state(site: Site) -> None:
    """Nothing is written, and the state of the scheduler stays equal."""
    site.state.set_pod(pod("a", memory=600))
    site.pods.add_if_new(pod("a", memory=600))
    await site.simulate(manifest(600))
    before = everything(site.state)
    for memory in (600, 5000):
        await site.simulate(manifest(memory))
    await site.send("GET", ALLOCATION)
    await site.send("GET", QUEUES)
    await site.send("GET", QUOTAS)
    await site.send("GET", GANGS)
    await site.send("GET", EXPLAIN, namespace="default", pod="a")
    assert everything(site.state) == before
    assert site.api.written == []
