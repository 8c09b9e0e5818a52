"""The API for users with rights in one namespace: who is admitted, and what they see, over real TLS."""

import asyncio
import time
from collections.abc import AsyncIterator
from functools import partial
from importlib import metadata
from typing import Any

import aiohttp
import jsonschema
import msgspec
import pytest

from allocation.names import QUEUE
from allocation.settings import AllocationSettings
from allocation.steps import Steps
from certs.ephemeral import EphemeralSource
from certs.leaf import ServerNames
from certs.source import listener_context
from cluster.errors import UnreachableError
from cluster.http.listener import listening
from cluster.measurement import ContainerMeasurement, DeviceMeasurement, NodeMeasurement
from lab import health
from scheduler.api import openapi
from scheduler.api.access_reviews import AccessReviews
from scheduler.api.health import application
from scheduler.api.namespaced.gate import NamespaceGate
from scheduler.api.namespaced.paths import (
    ADJUSTMENT,
    CAPACITY,
    CLUSTER_USAGE,
    GANGS,
    POD_EXPLANATION,
    QUEUES,
    SHARES,
    SIMULATION,
    TOKEN_HEADER,
    USAGE,
    VERSION,
)
from scheduler.api.namespaced.routes import namespace_routes
from scheduler.api.namespaced.turns import FairTurns
from scheduler.api.queries import Queries
from scheduler.api.request_body import LARGEST_BODY, LARGEST_YAML
from scheduler.api.token_reviews import TokenReviews
from scheduler.measurements.use_of_shares import UseOfShares
from tests.scheduler.support.builders import Clock, allocated, namespace, pod, state
from tests.scheduler.support.claims import claim as gpu_claim
from tests.scheduler.support.claims import manifest as gpu_claim_manifest
from tests.scheduler.support.claims import running
from tests.scheduler.support.driving import gpu_queue
from tests.scheduler.support.extending import Bindings, extending, pods_of
from tests.scheduler.support.leasing import lease_of
from tests.scheduler.support.preempting import evictions_of
from tests.scheduler.support.preferring import PREFERRED, in_
from tests.scheduler.support.scheduling import cycle_of
from tests.scheduler.support.storage import mounts, storage_class, volume
from webhook import dry_run
from webhook.settings import WebhookSettings

DOCUMENT = openapi.document()
ADMIT = partial(dry_run.dry_run, allocation=AllocationSettings(), settings=WebhookSettings())
RIGHTS = {
    "editor": {("get", "team"), ("list", "team"), ("create", "team")},
    "viewer": {("get", "team"), ("list", "team")},
    "admin": {("list", "")},
}


def listed(*items: dict[str, Any]) -> dict[str, Any]:
    """Return a List."""
    return {"apiVersion": "v1", "kind": "List", "items": list(items)}


def new_claim(**metadata: str) -> dict[str, Any]:
    """Return a claim that does not exist yet."""
    spec = {
        "accessModes": ["ReadWriteOnce"],
        "storageClassName": "local",
        "resources": {"requests": {"storage": "10Gi"}},
    }
    metadata = {"name": "data", **metadata}
    return {"apiVersion": "v1", "kind": "PersistentVolumeClaim", "metadata": metadata, "spec": spec}


class Reviewing(Bindings):
    """An API server whose tokens are usernames, with the rights of RIGHTS; it counts what it is asked."""

    def __init__(self) -> None:
        super().__init__()
        self.asked: list[dict[str, Any]] = []
        self.is_away = False

    async def request(self, method: str, path: str, **how: Any) -> bytes:
        """Review a token or a right."""
        if "reviews" not in path:
            return await super().request(method, path, **how)
        if self.is_away:
            raise UnreachableError("away")
        spec = how["body"]["spec"]
        self.asked.append(spec)
        await asyncio.sleep(0)
        if "token" in spec:
            user = {"username": spec["token"], "uid": "1", "groups": ["system:authenticated"], "extra": {"k": ["v"]}}
            known = spec["token"] in {*RIGHTS, "stranger"}
            return msgspec.json.encode({"status": {"authenticated": known, "user": user if known else {}}})
        wanted = spec["resourceAttributes"]
        allowed = (wanted["verb"], wanted["namespace"]) in RIGHTS.get(spec["user"], ())
        return msgspec.json.encode({"status": {"allowed": allowed}})


class Site:
    """A listener with the API, as the process has it."""

    def __init__(self) -> None:
        self.state = state("n1", "n2")
        self.state.limits.set_namespace(namespace("team", **{"gpu.scheduling/injection": "enabled"}))
        self.api = Reviewing()
        self.pods = pods_of(extending(self.state, self.api))
        self.decides = True
        self.turns = FairTurns(clock=time.monotonic)
        self.url = ""
        self.use: UseOfShares | None = None
        gate = NamespaceGate(TokenReviews(self.api), AccessReviews(self.api))
        routes = namespace_routes(
            lambda: (
                Queries(cycle_of(self.state), evictions_of(self.state), self.pods, use=self.use)
                if self.decides
                else None
            ),
            admit=ADMIT,
            gate=gate,
            turns=self.turns,
        )
        self.app = application(routes)

    def set_pod(self, made: Any) -> None:
        """Let the scheduler see a pod."""
        self.pods.add_if_new(made)
        self.state.set_pod(made)

    def measured(self, *uids: str) -> None:
        """Let the scheduler read what these pods use of the first card of n1."""
        self.use = UseOfShares(self.state.ledger, read_seconds=60.0, idle_seconds=600.0, clock=Clock())
        card = "GPU-n1-0"
        containers = tuple(ContainerMeasurement(uid, "ab" * 32, card, 5) for uid in uids)
        self.use.record("n1", NodeMeasurement("n1", 0.0, (DeviceMeasurement(card, 9),), containers))

    async def ask(
        self,
        method: str,
        path: str,
        *,
        token: str = "",
        body: Any = None,
        query: str = "",
        header: str = TOKEN_HEADER,
        content_type: str = "",
        **names: str,
    ) -> tuple[int, Any]:
        """Send a request, validate the response against the OpenAPI document, and return status and response."""
        headers = {header: f"Bearer {token}" if header == "Authorization" else token} if token else {}
        headers |= {"Content-Type": content_type} if content_type else {}
        async with (
            aiohttp.ClientSession(connector=aiohttp.TCPConnector(ssl=health.unverified())) as session,
            session.request(
                method,
                self.url + path.format(**{"namespace": "team", **names}) + query,
                data=msgspec.json.encode(body) if isinstance(body, dict) else body,
                headers=headers,
            ) as answer,
        ):
            content = msgspec.json.decode(await answer.read())
        known = DOCUMENT["paths"][path][method.lower()]["responses"]
        schema = known[str(answer.status)]["content"]["application/json"]["schema"]
        jsonschema.Draft202012Validator({**schema, "components": DOCUMENT["components"]}).validate(content)
        return answer.status, content


@pytest.fixture
async def site() -> AsyncIterator[Site]:
    """Listen while a test runs, with a certificate that the process made itself."""
    made = Site()
    tls = listener_context(EphemeralSource(ServerNames(dns_names=("tranche-scheduler.tranche-system.svc",))))
    async with listening(made.app, host="127.0.0.1", port=0, tls=tls) as port:
        made.url = f"https://127.0.0.1:{port}"
        yield made


def manifest(memory: int, **metadata: Any) -> dict[str, Any]:
    """Return a pod as a user writes it."""
    limits = {"nvidia.com/gpu": 1, "nvidia.com/gpumem": memory}
    container = {"name": "main", "image": "x", "resources": {"limits": limits}}
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": "asks", **metadata},
        "spec": {"containers": [container]},
    }


@pytest.mark.parametrize(
    ("token", "expected"),
    [("editor", (200, 200, 200)), ("viewer", (200, 403, 200)), ("stranger", (403, 403, 403)), ("x", (401, 401, 401))],
)
async def test_a_right_in_the_namespace_admits_the_user(site: Site, token: str, expected: tuple[int, int, int]) -> None:
    """`get pods` for explanations, `create pods` for simulations, `list pods` for shares; in that namespace only."""
    site.set_pod(pod("a", memory=100, namespace="team"))
    statuses = (
        (await site.ask("GET", POD_EXPLANATION, pod="a", token=token))[0],
        (await site.ask("POST", SIMULATION, body=manifest(100), token=token))[0],
        (await site.ask("GET", SHARES, token=token))[0],
    )
    assert statuses == expected
    status, answer = await site.ask("GET", SHARES, token=token, namespace="other")
    assert status == (401 if token == "x" else 403)  # noqa: S105 -- no secret
    assert answer["error"]


async def test_usage_is_that_of_the_namespace(site: Site) -> None:
    """Without that of other pods, and without that of cards, by which the difference would show."""
    for name, where in (("a", "team"), ("b", "other")):
        site.set_pod(allocated(name, node="n1", memory=300, card=0, namespace=where))
    site.measured("uid-a", "uid-b")
    status, content = await site.ask("GET", USAGE, token="viewer")  # noqa: S106
    assert (status, [each["uid"] for each in content["pods"]], content["devices"]) == (200, ["uid-a"], [])
    (container,) = content["pods"][0]["containers"]
    assert container == {"id": "ab" * 32, "memoryBytes": 5, "utilizationPercent": None}
    assert (await site.ask("GET", USAGE, token="stranger"))[0] == 403  # noqa: S106


async def test_usage_of_the_cluster_needs_rights_in_all_namespaces(site: Site) -> None:
    """It has all pods, and the cards."""
    for name, where in (("a", "team"), ("b", "other")):
        site.set_pod(allocated(name, node="n1", memory=300, card=0, namespace=where))
    site.measured("uid-a", "uid-b")
    status, content = await site.ask("GET", CLUSTER_USAGE, token="admin")  # noqa: S106
    assert (status, [each["uid"] for each in content["pods"]]) == (200, ["uid-b", "uid-a"])
    assert content["devices"] == [
        {"node": "n1", "device": "GPU-n1-0", "memoryUsedBytes": 9, "utilizationPercent": None}
    ]
    status, content = await site.ask("GET", CLUSTER_USAGE, token="viewer")  # noqa: S106
    assert (status, content["error"].startswith("viewer cannot list pods in all namespaces;")) == (403, True)


async def test_usage_says_when_nothing_is_read(site: Site) -> None:
    """The setting is named."""
    status, content = await site.ask("GET", USAGE, token="viewer")  # noqa: S106
    assert (status, content["pods"], "measurements.read_seconds" in content["problem"]) == (200, [], True)


async def test_users_who_may_get_pods_ask_for_another_size(site: Site) -> None:
    """Of a pod of that namespace; the body is that of the annotation."""
    site.set_pod(allocated("a", node="n1", memory=300, card=0, namespace="team"))

    async def ask(token: str, body: bytes = b'{"main":{"gpumem":900}}', pod: str = "a") -> tuple[int, Any]:
        return await site.ask("POST", ADJUSTMENT, namespace="team", pod=pod, token=token, body=body)

    status, content = await ask("viewer")
    assert (status, content["fits"]) == (200, True)
    assert (await ask("stranger"))[0] == 403
    assert (await ask("viewer", pod="gone"))[0] == 404
    for body in (b"{", b'{"main":{"gpumem":0}}', b"\xff", b"{" + b" " * 5000):
        status, content = await ask("viewer", body)
        assert (status, "gpu.scheduling/resize" in content["error"] or "utf-8" in content["error"]) == (400, True)


async def test_a_request_without_token_is_rejected_with_instructions(site: Site) -> None:
    """A client that reaches the scheduler directly may send the token in the usual header."""
    status, answer = await site.ask("GET", SHARES)
    assert (status, TOKEN_HEADER in answer["error"]) == (401, True)
    assert (await site.ask("GET", SHARES, token="viewer", header="Authorization"))[0] == 200  # noqa: S106


async def test_reviews_are_cached(site: Site) -> None:
    """With all attributes of the user: groups and extra fields affect authorisation, too."""
    for _ in range(3):
        await site.ask("GET", SHARES, token="viewer")  # noqa: S106
    review, access = site.api.asked
    assert review == {"token": "viewer"}  # no audiences: those of the API server itself
    assert access == {
        "user": "viewer",
        "uid": "1",
        "groups": ["system:authenticated"],
        "extra": {"k": ["v"]},
        "resourceAttributes": {
            "verb": "list",
            "resource": "pods",
            "subresource": "",
            "version": "v1",
            "namespace": "team",
        },
    }


async def test_cached_reviews_expire() -> None:
    """A revoked right is gone after 10 s, a revoked token after 30 s; the cache is bounded."""
    clock, api = Clock(), Reviewing()
    tokens, access = TokenReviews(api, clock=clock), AccessReviews(api, clock=clock)
    user = await tokens.user("viewer")
    assert user is not None
    assert await access.allows(user, verb="get", namespace="team")
    clock.now += 11
    await tokens.user("viewer")
    await access.allows(user, verb="get", namespace="team")
    assert len(api.asked) == 3
    clock.now += 20
    await tokens.user("viewer")
    assert len(api.asked) == 4
    for number in range(3000):
        assert await tokens.user(f"forged-{number}") is None
    assert len(tokens._cache._values) <= 1024


async def test_an_unreachable_api_server_admits_nobody(site: Site) -> None:
    """The status is 503, as on a replica that does not schedule; that one does not even review callers."""
    site.api.is_away = True
    assert (await site.ask("GET", SHARES, token="viewer"))[0] == 503  # noqa: S106
    site.decides = False
    status, answer = await site.ask("GET", SHARES, token="viewer")  # noqa: S106
    assert (status, "does not decide" in answer["error"]) == (503, True)


async def test_pods_of_other_namespaces_are_not_visible(site: Site) -> None:
    """A response is the same bytes whether the pods of other namespaces use 10 MiB or 400 MiB."""
    answers = []
    preferring = {"nodeAffinity": {PREFERRED: [in_("kubernetes.io/hostname", "n1")]}}
    for number, memory in enumerate((10, 400)):
        for card in (0, 1):
            name = f"secret-{number}-{card}"
            site.set_pod(allocated(name, node="n1", memory=memory, card=card, namespace="other"))
        site.set_pod(pod("a", memory=700, namespace="team", affinity=preferring))
        explained = await site.ask("GET", POD_EXPLANATION, pod="a", token="editor", query="?node=n1")  # noqa: S106
        simulated = await site.ask("POST", SIMULATION, body=manifest(650), token="editor", query="?node=n1")  # noqa: S106
        shares = await site.ask("GET", SHARES, token="editor")  # noqa: S106
        answers.append((explained[1] | {"queue": None}, simulated[1], shares[1]))
        assert "secret" not in str(answers)
        for card in (0, 1):
            site.state.drop_pod(allocated(f"secret-{number}-{card}", node="n1", memory=memory, namespace="other"))
    assert answers[0] != answers[1]  # where 10 MiB are taken the pod fits, where 400 are it does not: free, or not
    fits, waits = (each[0] for each in answers)
    assert [card["verdicts"][0]["verdict"] for card in fits["nodes"][0]["cards"]] == ["FITS", "FITS"]
    assert [card["verdicts"][0]["verdict"] for card in waits["nodes"][0]["cards"]] == ["CardInsufficientMemory"] * 2
    for each in (fits, waits):
        for node in each["nodes"]:
            assert node["score"] is None
            assert node["scores"] == {}
            for card in node["cards"]:
                assert (card["memoryMiB"], card["cores"]["free"], card["slots"]["free"]) == (
                    {"free": None, "total": 1000},
                    None,
                    None,
                )
                assert card["verdicts"][0]["score"] is None
    for simulated in (each[1] for each in answers):
        assert simulated["gpuSchedulerState"]["ValidNodeGPUScore"] == {}


async def test_the_reason_of_a_closed_node_names_no_pod(site: Site) -> None:
    """The reason has its code; only administrators see the name of a pod in another namespace."""
    site.set_pod(pod("secret", memory=10, node="n1", phase="Running", namespace="other"))
    site.set_pod(allocated("mine", node="n1", memory=10, namespace="team"))
    site.set_pod(pod("a", memory=100, namespace="team"))
    _, explained = await site.ask("GET", POD_EXPLANATION, pod="a", token="viewer")  # noqa: S106
    _, simulated = await site.ask("POST", SIMULATION, body=manifest(2000), token="editor")  # noqa: S106
    _, shares = await site.ask("GET", SHARES, token="viewer")  # noqa: S106
    assert explained["nodes"][0]["code"] == "UncountedPod"
    assert shares["nodes"][0]["closed"] == "UncountedPod"
    assert "secret" not in str((explained, simulated, shares))


async def test_a_namespace_sees_the_queues_that_it_may_use(site: Site) -> None:
    """With numbers where its pods belong to them, and pods of its own only; a queue of another team is not shown.

    Nor does a pod that names such a queue show it.
    """
    for name, selector in (("ours", {}), ("spare", {}), ("theirs", {"matchLabels": {"owner": "other"}})):
        site.state.limits.set_queue(gpu_queue(name, weight=3, namespaceSelector=selector))
    for name, where, queue in (
        ("a", "team", "ours"),
        ("b", "secret", "ours"),
        ("c", "secret", "theirs"),
        ("d", "team", "theirs"),
    ):
        site.set_pod(pod(name, memory=100_000, namespace=where, labels={QUEUE: queue}))
    status, content = await site.ask("GET", QUEUES, token="viewer")  # noqa: S106
    assert status == 200
    shown = {each["name"]: each for each in content["queues"]}
    assert sorted(shown) == ["ours", "spare"]
    assert (shown["ours"]["redacted"], shown["ours"]["waiting"], shown["ours"]["next"]) == (False, 2, ["team/a"])
    assert (shown["spare"]["redacted"], shown["spare"]["weight"], shown["spare"]["entitlement"]) == (True, 3, 0.0)
    assert "secret" not in str(content)


async def test_a_namespace_sees_its_own_gangs(site: Site) -> None:
    """And nothing of a gang of the same name elsewhere, which a query cannot name either."""
    labels, keys = {"gpu.scheduling/gang": "train"}, {"gpu.scheduling/gang-min-members": "2"}
    for name, where in (("mine", "team"), ("secret", "other")):
        site.set_pod(pod(name, memory=100, namespace=where, labels=labels, annotations=keys))
    _, content = await site.ask("GET", GANGS, token="viewer")  # noqa: S106
    assert [(each["namespace"], each["waiting"], each["members"]) for each in content["gangs"]] == [("team", 1, [])]
    query = "?name=train&namespace=other&after=other/"
    _, content = await site.ask("GET", GANGS, token="viewer", query=query)  # noqa: S106
    (gang,) = content["gangs"]
    assert [each["pod"] for each in gang["members"]] == ["mine"]
    assert "secret" not in str(content)
    assert (await site.ask("GET", GANGS, token="stranger"))[0] == 403  # noqa: S106
    assert (await site.ask("GET", GANGS, token="viewer", namespace="other"))[0] == 403  # noqa: S106


async def test_an_explanation_of_a_gang_names_no_pod_of_another_namespace(site: Site) -> None:
    """Also where the gang does not fit because of such a pod."""
    labels, keys = {"gpu.scheduling/gang": "train"}, {"gpu.scheduling/gang-min-members": "4"}
    site.set_pod(allocated("secret", node="n1", memory=1000, namespace="other"))
    for index in range(4):
        site.set_pod(pod(f"m{index}", memory=1000, namespace="team", labels=labels, annotations=keys))
    _, shown = await site.ask("GET", POD_EXPLANATION, pod="m0", token="viewer")  # noqa: S106
    assert (shown["outcome"], shown["gang"]["fitting"], shown["gang"]["pod"]) == ("waits", 3, "m3")
    assert "secret" not in str(shown)


async def test_a_namespace_sees_its_own_shares(site: Site) -> None:
    """The cards with shares of the namespace, their sizes and its own pods; not the other pod on the same card."""
    site.set_pod(allocated("mine", node="n1", memory=300, namespace="team"))
    site.set_pod(allocated("theirs", node="n1", memory=200, namespace="other"))
    site.set_pod(allocated("elsewhere", node="n2", memory=200, namespace="other"))
    _, found = await site.ask("GET", SHARES, token="viewer")  # noqa: S106
    (node,) = found["nodes"]
    (card,) = node["cards"]
    assert (node["name"], node["closed"], card["uuid"], card["memoryMiB"]) == ("n1", "", "GPU-n1-0", 1000)
    assert card["shares"] == [
        {
            "pod": "mine",
            "container": "main",
            "memoryMiB": 300,
            "cores": 0,
            "claim": "",
            "whole": False,
            "memoryLimitMiB": 0,
            "coresLimit": 0,
        }
    ]


async def test_a_namespace_sees_the_claims_of_its_own_pods(site: Site) -> None:
    """Not those of other namespaces, on whatever card."""
    mine, theirs = gpu_claim("mine", namespace="team"), gpu_claim("secret", namespace="other")
    site.set_pod(running("a", mine, node="n1", containers=("main", "side")))
    site.set_pod(running("b", theirs, node="n1", cards=(1,)))
    _, found = await site.ask("GET", SHARES, token="viewer")  # noqa: S106
    (card,) = found["nodes"][0]["cards"]
    assert [(each["container"], each["claim"], each["whole"]) for each in card["shares"]] == [
        ("main", "mine", True),
        ("side", "mine", True),
    ]
    assert "secret" not in str(found)


async def test_a_card_that_a_lease_closes_names_nobody(site: Site) -> None:
    """Neither the pod that holds the Lease nor its claim; only that the card is not free."""
    site.state.set_lease(lease_of("secret"))
    site.set_pod(pod("a", memory=10, namespace="team"))
    _, found = await site.ask("GET", POD_EXPLANATION, pod="a", token="viewer", query="?node=n1")  # noqa: S106
    verdicts = [card["verdicts"][0]["verdict"] for card in found["nodes"][0]["cards"]]
    assert (verdicts[0] != "FITS", verdicts[1]) == (True, "FITS")
    assert "secret" not in str(found)


async def test_a_claim_of_another_namespace_is_unknown(site: Site) -> None:
    """The answer is the same whether it exists there or not."""
    made = manifest(10)
    made["metadata"]["annotations"] = {"gpu.scheduling/claim": "secret"}
    answers = []
    for _ in range(2):
        status, answer = await site.ask("POST", SIMULATION, body=made, token="editor")  # noqa: S106
        assert (status, answer["error"]["type"]) == (200, "NotAdmitted")
        answers.append(answer)
        site.state.set_claim(gpu_claim("secret", namespace="other"))
    assert answers[0] == answers[1]
    planned = gpu_claim_manifest("secret", namespace="other")
    status, answer = await site.ask("POST", SIMULATION, body=listed(made, planned), token="editor")  # noqa: S106
    assert (status, "a pod can name only a claim of its own namespace" in answer["error"]) == (400, True)


@pytest.mark.parametrize(
    ("body", "status", "said"),
    [
        (b"{", 400, "not JSON"),
        (b"kind: Pod", 400, "not JSON"),
        (b"[" * 50_000, 400, ""),
        (b'{"apiVersion":"v1","kind":"Service"}', 400, "Service"),
        (b'{"apiVersion":"v1","kind":"Pod","metadata":[]}', 400, "metadata"),
        (manifest(10, namespace="other"), 400, "use the pod's own namespace"),
        (listed(manifest(10), new_claim(namespace="other")), 400, "a pod can mount only claims of its own namespace"),
        (listed(manifest(10), manifest(10)), 400, "2 Pods"),
        (b" " * (LARGEST_BODY + 1), 413, "larger than the limit"),
        ({**manifest(10), "spec": {"schedulerName": "other", "containers": [{"name": "a"}]}}, 422, "scheduler other"),
    ],
)
async def test_a_body_that_is_not_a_pod_of_the_namespace_is_rejected(
    site: Site, body: Any, status: int, said: str
) -> None:
    """The error says why; YAML has to be declared, because it is read in turns."""
    found, answer = await site.ask("POST", SIMULATION, body=body, token="editor")  # noqa: S106
    assert (found, said in answer["error"]) == (status, True)


YAML_POD = b"""
apiVersion: v1
kind: Pod
metadata: {name: asks}
spec:
  containers:
    - {name: main, image: x, resources: {limits: {nvidia.com/gpu: 1, nvidia.com/gpumem: 10}}}
"""


async def test_pasted_yaml_is_read_in_turns(site: Site) -> None:
    """As people write it; parsing it takes no more than a tenth of the time."""
    asked = {"content_type": "application/yaml", "token": "editor"}
    for path in (SIMULATION, CAPACITY):
        assert (await site.ask("POST", path, body=YAML_POD, **asked))[0] == 200
    other = YAML_POD.replace(b"{name: asks}", b"{name: asks, namespace: other}")
    for body, status, said in (
        (other, 400, "use the pod's own namespace"),
        (b"a: &a [*a]", 400, ""),
        (b"#" * (LARGEST_YAML + 1), 413, f"limit of {LARGEST_YAML} bytes"),
    ):
        found, answer = await site.ask("POST", SIMULATION, body=body, **asked)
        assert (found, said in answer["error"]) == (status, True)
    async with site.turns._lock:
        asking = asyncio.create_task(site.ask("POST", SIMULATION, body=YAML_POD, **asked))
        await asyncio.sleep(0.1)
        assert not asking.done()
    assert (await asking)[0] == 200


async def test_claims_that_do_not_exist_are_sent_with_the_pod(site: Site) -> None:
    """The pod goes to the node of an available volume, whose name is not shown; nothing is reserved or created."""
    site.state.storage.set_class(storage_class())
    site.state.storage.set_volume(volume("secret-pv", node="n2"))
    made = manifest(100)
    made["spec"]["volumes"] = mounts("data")
    _, alone = await site.ask("POST", SIMULATION, body=made, token="editor")  # noqa: S106
    assert 'persistentvolumeclaim "data" not found' in alone["error"]["message"]
    for _ in range(2):
        status, together = await site.ask("POST", SIMULATION, body=listed(made, new_claim()), token="editor")  # noqa: S106
        assert (status, together["scheduleResult"]["SuggestedHost"]) == (200, "n2")
        (shown,) = together["explanation"]["claims"]
        assert (shown["name"], shown["state"], shown["volume"], shown["usableOn"]) == ("data", "unbound", "", "n2")
        assert "secret" not in str(together)


async def test_an_unknown_pod_is_404_and_two_nodes_are_400(site: Site) -> None:
    """For callers with the right to know."""
    assert (await site.ask("GET", POD_EXPLANATION, pod="b", token="viewer"))[0] == 404  # noqa: S106
    site.set_pod(pod("a", memory=10, namespace="team"))
    query = "?node=n1&node=n2"
    assert (await site.ask("GET", POD_EXPLANATION, pod="a", token="viewer", query=query))[0] == 400  # noqa: S106


async def test_one_user_cannot_exclude_others(site: Site) -> None:
    """Of many concurrent requests of a user four are served and the others get 429; other users are served."""
    site.set_pod(pod("a", memory=10, namespace="team"))
    await site.ask("GET", SHARES, token="viewer")  # noqa: S106
    turns = asyncio.Event()
    held = asyncio.create_task(_hold(site, turns))
    await asyncio.sleep(0)
    asking = [asyncio.create_task(site.ask("GET", POD_EXPLANATION, pod="a", token="viewer")) for _ in range(12)]  # noqa: S106
    done: set[asyncio.Task[tuple[int, Any]]] = set()
    while len(done) < 8:
        done, _ = await asyncio.wait(asking, timeout=0.05)
    assert [task.result()[0] for task in done] == [429] * 8
    other = asyncio.create_task(site.ask("GET", POD_EXPLANATION, pod="a", token="editor"))  # noqa: S106
    turns.set()
    await held
    assert (await other)[0] == 200
    assert sorted(status for status, _ in await asyncio.gather(*asking)) == [200] * 4 + [429] * 8


async def _hold(site: Site, until: asyncio.Event) -> None:
    """Block every computation."""
    async with site.turns._lock:
        await until.wait()


@pytest.mark.parametrize("decides", [True, False])
async def test_every_replica_returns_its_version_to_everybody(site: Site, *, decides: bool) -> None:
    """As the API server's `/version`: neither a token nor a term as leader is needed."""
    site.decides = decides
    assert await site.ask("GET", VERSION) == (200, {"version": metadata.version("tranche")})
    assert site.api.asked == []


async def test_queries_take_a_tenth_of_the_time_at_most() -> None:
    """After a response that took 20 ms the next is computed 180 ms later."""
    turns = FairTurns(clock=time.monotonic)

    def work() -> Steps[float]:
        end = time.monotonic() + 0.02
        while time.monotonic() < end:
            pass
        yield
        return time.monotonic()

    ended = await turns.take(work)
    begun = time.monotonic()
    assert await turns.take(work) - ended > 0.17
    await turns.parse(lambda: time.sleep(0.02))
    ended = time.monotonic()
    assert await turns.take(work) - ended > 0.17
    assert time.monotonic() - begun < 5


def test_an_answer_about_a_large_cluster_comes_in_many_steps() -> None:
    """500 nodes: the decision, the nodes' reasons and the explanation can each be interrupted every few nodes."""
    made = state(*(f"n{number:03}" for number in range(500)))
    pods = pods_of(extending(made, Bindings()))
    asks = pod("a", memory=5000)
    pods.add_if_new(asks)
    made.set_pod(asks)
    steps = Queries(cycle_of(made), evictions_of(made), pods).explain("default", "a", cards_of=())
    assert sum(1 for _ in steps) >= 3 * 500 // 64
