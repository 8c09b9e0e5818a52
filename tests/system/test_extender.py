"""Extender mode behind a stock kube-scheduler: its predicates, the extender's cards, one Binding; failover of pairs."""

from __future__ import annotations

import json
import logging
import sys
import time
import urllib.error
import urllib.request
from collections import Counter
from typing import TYPE_CHECKING, Any

import pytest

from allocation.ledger.card_table import MEMORY
from lab import health, kubeconfig, kubectl, manifests, pki, wait
from lab.client import client
from lab.errors import LabError
from lab.layout import Port
from lab.manifests import ROOT
from lab.processes import Daemon
from tests.support import namespaces
from tests.support.patience import PATIENCE_S
from tests.system.conftest import Namespace, pod
from tests.system.support import audit, pairs, rights, scheduler_api, truth
from tests.system.support.gpubindings import placed
from tests.system.support.pairs import Pair

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping
    from pathlib import Path

    from lab.layout import Layout

log = logging.getLogger(__name__)
pytestmark = pytest.mark.apiserver
NODES = [f"n-{number:03}" for number in range(100)]
ZONE_A, TAINTED = NODES[:20], NODES[90:]
LOCK = "hami.io/mutex.lock"


@pytest.fixture(scope="module")
def logged_before(empty_cluster: Layout) -> int:
    """The size of the audit log of the modules before this one."""
    return empty_cluster.audit_log.stat().st_size


@pytest.fixture(scope="module")
def extended(uts_support: None, empty_cluster: Layout, logged_before: int) -> Layout:
    """100 nodes with 8 cards each, 20 of them in zone a and 10 tainted, and one pair."""
    pairs.up(empty_cluster, NODES)
    kubectl.run(empty_cluster, "label", "node", *ZONE_A, "zone=a")
    kubectl.run(empty_cluster, "label", "node", *TAINTED, "dedicated=yes")
    kubectl.run(empty_cluster, "taint", "node", *TAINTED, "dedicated=yes:NoSchedule")
    Pair(empty_cluster, 0).start()
    return empty_cluster


@pytest.fixture
def make(extended: Layout) -> Iterator[Callable[[str], Namespace]]:
    """A function that creates opted-in namespaces; their pods are deleted before the next test begins."""
    made: list[Namespace] = []

    def make(name: str) -> Namespace:
        namespaces.create(extended, name, {"gpu.scheduling/injection": "enabled"})
        made.append(Namespace(extended, name))
        return made[-1]

    yield make
    for each in made:
        each.api.delete_all("pods", namespace=each.name, timeout_s=PATIENCE_S)


@pytest.fixture
def standby(extended: Layout) -> Iterator[Pair]:
    """A second pair, with mutual TLS. After the test the first one is alone again, and leads."""
    first, second = Pair(extended, 0), Pair(extended, 1, tls=True)
    # It may have lost its Lease in an outage before.
    wait.until(lambda: filter_error(first) == "", what="the first pair leads", timeout_s=PATIENCE_S)
    second.start()
    yield second
    second.kill()
    wait.until(lambda: filter_error(first) == "", what="the first pair leads again", timeout_s=PATIENCE_S)


def decisions(pair: Pair) -> Counter[str]:
    """Return the extender's decisions by outcome; `unschedulable` is a rejected /bind."""
    samples = scheduler_api.metrics(pair.url)["tranche_scheduler_decisions_total"]
    return Counter({sample.labels["outcome"]: int(sample.value) for sample in samples})


def all_bound(namespace: Namespace, count: int, *, patience_s: float = 2 * PATIENCE_S) -> list[dict[str, Any]]:
    """Wait until `count` pods have a node, and return them."""

    def enough(pods: Mapping[str, Any]) -> list[dict[str, Any]] | None:
        bound = [each for each in pods.values() if each["spec"].get("nodeName")]
        return bound if len(bound) == count else None

    what = f"{count} bound pods"
    return namespace.api.until(enough, "pods", namespace=namespace.name, what=what, timeout_s=patience_s)


def test_extender_places_two_hundred_fractional_pods(extended: Layout, make: Callable[[str], Namespace]) -> None:
    """All are bound; nodeSelector, taints and CPU requests hold; each allocation comes with its Binding."""
    namespace = make("fractional")
    pods = []
    for number in range(200):
        made = pod(f"p-{number}", gpu=1, gpumem=(number % 7 + 1) * 2000, gpucores=10)
        spec = made["spec"]
        if number < 40:
            spec["nodeSelector"] = {"zone": "a"}
        elif number < 60:
            spec["nodeSelector"] = {"dedicated": "yes"}
            spec["tolerations"] = [{"key": "dedicated", "operator": "Exists"}]
        elif number < 80:
            spec["containers"][0]["resources"]["requests"] = {"cpu": "40"}  # a node has 64
        pods.append(made)
    began = time.monotonic()
    namespace.create(*pods)
    bound = {each["metadata"]["name"]: each for each in all_bound(namespace, 200)}
    log.info("200 pods in %.1f s: %s", time.monotonic() - began, decisions(Pair(extended, 0)))

    nodes = [bound[f"p-{number}"]["spec"]["nodeName"] for number in range(200)]
    assert set(nodes[:40]) <= set(ZONE_A)
    assert set(nodes[40:60]) <= set(TAINTED)
    assert set(nodes[60:]).isdisjoint(TAINTED)
    assert max(Counter(nodes[60:80]).values()) == 1
    truth.recount(extended)
    for each in bound.values():
        annotations = each["metadata"]["annotations"]
        assert json.loads(annotations["gpu.scheduling/allocation"])["node"] == each["spec"]["nodeName"]

    written = Counter(
        audit.what(each) for each in audit.writes(extended, namespace=namespace.name, user=audit.SCHEDULER)
    )
    assert written["pods/binding"] == 200
    assert set(written) <= {"pods/binding", "events", "pods/status"}
    for node in client(extended).list("nodes"):
        assert LOCK not in node["metadata"].get("annotations", {})


def test_extender_allocates_the_last_whole_card(extended: Layout, make: Callable[[str], Namespace]) -> None:
    """160 pods get the 160 cards in zone a; a pod whose card was taken first is rejected and tries again."""
    namespace = make("whole")
    before = decisions(Pair(extended, 0))
    pods = [pod(f"p-{number}", gpu=1) for number in range(8 * len(ZONE_A))]
    for each in pods:
        each["spec"]["nodeSelector"] = {"zone": "a"}
    began = time.monotonic()
    namespace.create(*pods)
    all_bound(namespace, len(pods))
    log.info("160 cards in %.1f s: %s", time.monotonic() - began, decisions(Pair(extended, 0)) - before)
    ledger = truth.recount(extended)
    assert all(int(ledger.used[MEMORY, ledger.row(name)].sum()) == pairs.CARDS * pairs.CARD_MIB for name in ZONE_A)
    # One more pod waits, with every node's reason, and gets its card when another pod is deleted.
    late = pod("late", gpu=1)
    late["spec"]["nodeSelector"] = {"zone": "a"}
    namespace.create(late)
    assert "20 8/8 CardInsufficientMemory" in namespace.unplaced("late")
    # That is so also if kube-scheduler hears of the deletion before its extender does.
    namespace.delete("pod", "p-7")
    placed(namespace, "late")


def preempt_calls(pair: Pair) -> int:
    """Return how often kube-scheduler has called /preempt."""
    samples = scheduler_api.metrics(pair.url)["tranche_scheduler_extender_seconds_count"]
    return next(int(sample.value) for sample in samples if sample.labels["verb"] == "preempt")


def test_nobody_is_evicted_for_a_node_without_cards(extended: Layout, make: Callable[[str], Namespace]) -> None:
    """kube-scheduler would evict a pod for its CPU; the cards are those of pods that are as important."""
    high = {"apiVersion": "scheduling.k8s.io/v1", "kind": "PriorityClass", "metadata": {"name": "high"}, "value": 1000}
    client(extended).apply(high)
    namespace = make("evictions")

    def on_node(name: str, *, cpu: str = "", gpu: int = 0, priority: str = "high") -> dict[str, Any]:
        made = pod(name, gpu=gpu) if gpu else pod(name)
        where = {"kubernetes.io/hostname": NODES[50]}
        made["spec"] |= {"nodeSelector": where, "schedulerName": "tranche"}
        if priority:
            made["spec"]["priorityClassName"] = priority
        if cpu:
            made["spec"]["containers"][0].setdefault("resources", {})["requests"] = {"cpu": cpu}
        return made

    cards = [f"card-{number}" for number in range(pairs.CARDS)]
    namespace.create(on_node("victim", cpu="60", priority=""), *(on_node(name, gpu=1) for name in cards))
    all_bound(namespace, 1 + len(cards))
    pair = Pair(extended, 0)
    before = preempt_calls(pair)
    namespace.create(on_node("preemptor", cpu="10", gpu=1))
    wait.until(lambda: preempt_calls(pair) > before, what="a call of /preempt", timeout_s=PATIENCE_S)
    assert "Insufficient cpu" in namespace.unplaced("preemptor")
    assert "deletionTimestamp" not in namespace.pod("victim")["metadata"]
    # With a free card the eviction helps.
    namespace.delete("pod", cards[0])
    assert placed(namespace, "preemptor")["spec"]["nodeName"] == NODES[50]
    assert "victim" not in {each["metadata"]["name"] for each in namespace.pods()}


def post(
    url: str, body: dict[str, Any], *, bearer: str = "", certificate: tuple[Path, Path] | None = None
) -> tuple[int, dict[str, Any]]:
    """Post to an extender; return the status and the decoded body, which is empty for an error status."""
    tls = health.unverified()
    if certificate is not None:
        tls.load_cert_chain(*certificate)
    headers = {"Authorization": f"Bearer {bearer}"} if bearer else {}
    request = urllib.request.Request(url, data=json.dumps(body).encode(), headers=headers)  # noqa: S310 -- a URL of the test
    opener = urllib.request.build_opener(urllib.request.ProxyHandler({}), urllib.request.HTTPSHandler(context=tls))
    try:
        with opener.open(request, timeout=10) as response:
            return response.status, json.loads(response.read())
    except urllib.error.HTTPError as error:
        return error.code, {}


def test_bind_verb_bypasses_no_check(extended: Layout, make: Callable[[str], Namespace]) -> None:
    """A caller of /bind can bind only what kube-scheduler could bind, and no reservation remains."""
    namespace = make("around")
    url = f"{Pair(extended, 0).url}/bind"
    foreign = {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "foreign"}}
    # A pod of another scheduler, which the extender must not bind.
    spec = pod("foreign")["spec"]
    namespace.create({**foreign, "spec": {**spec, "schedulerName": "batch"}}, pod("waits", gpu=1, gpumem=999999))
    namespace.unplaced("waits")

    def bind_error(name: str, *, uid: str = "", node: str = NODES[0]) -> str:
        uid = uid or namespace.pod(name)["metadata"]["uid"]
        body = {"PodName": name, "PodNamespace": namespace.name, "PodUID": uid, "Node": node}
        status, content = post(url, body)
        assert status == 200
        return str(content["error"])

    assert "schedulerName is batch" in bind_error("foreign")
    assert "CardInsufficientMemory" in bind_error("waits")
    assert "another pod has the name now" in bind_error("waits", uid="00000000-0000-0000-0000-000000000000")
    assert "no node ghost" in bind_error("waits", node="ghost")
    assert "does not exist" in bind_error("nobody", uid="x")
    namespace.create(pod("bound", gpu=1, gpumem=1000))
    (bound,) = all_bound(namespace, 1)
    assert f"bound to {bound['spec']['nodeName']}" in bind_error("bound", node=NODES[5])
    assert namespace.pod("bound")["spec"]["nodeName"] == bound["spec"]["nodeName"]
    truth.recount(extended)


def test_share_is_not_freed_while_its_pod_runs(extended: Layout, make: Callable[[str], Namespace]) -> None:
    """A pod that kube-scheduler placed cannot be deleted immediately, and only its node can declare it ended."""
    namespace = make("lifetime")
    namespace.create(pod("holder", gpu=1, gpumem=1000))
    (bound,) = all_bound(namespace, 1)
    with pytest.raises(LabError, match="pod holder holds GPUs of node"):
        namespace.delete("pod", "holder", grace_s=0, wait=False)
    with pytest.raises(LabError, match=f"only its node {bound['spec']['nodeName']} may change it"):
        namespace.kubectl("patch", "pod", "holder", "--subresource=status", "-p", '{"status": {"phase": "Failed"}}')


def test_etcd_outage_changes_nothing(extended: Layout, make: Callable[[str], Namespace]) -> None:
    """Etcd is stopped during Bindings, longer than any Lease: all pods get a node, no card is allocated twice."""
    namespace = make("outage")
    namespace.create(*(pod(f"p-{number}", gpu=1, gpumem=4000) for number in range(60)))
    pair = Pair(extended, 0)
    with Daemon(extended, "etcd").paused():
        wait.until(lambda: not pair.kube_scheduler.is_running, what="its end without a Lease", timeout_s=PATIENCE_S)
    wait.until(lambda: is_writable(extended), what="an API server with its etcd", timeout_s=PATIENCE_S)
    pair.start_kube_scheduler()
    all_bound(namespace, 60)
    truth.recount(extended)
    accepted = truth.bindings(audit.writes(extended, namespace=namespace.name))
    assert set(accepted.values()) == {1}


def is_writable(layout: Layout) -> bool:
    """Return whether the API server accepts writes again."""
    try:
        client(layout).patch("namespace", "default", {"metadata": {"annotations": {"outage": "over"}}})
    except LabError:
        return False
    return True


def test_exposed_extender_rejects_strangers(extended: Layout) -> None:
    """The API server reviews the tokens: of the allowed account, of another one, forged, or missing."""
    for name in ("caller", "stranger"):
        account = {"apiVersion": "v1", "kind": "ServiceAccount", "metadata": {"name": name, "namespace": "default"}}
        client(extended).apply(account)
    port = extended.port(Port.SCHEDULER) + 20
    identity = kubeconfig.service_account_kubeconfig(extended, namespace="tranche-system", name="tranche-scheduler")
    daemon = Daemon(extended, "extender-exposed")
    daemon.start(
        [
            *(sys.executable, "-m", "scheduler", "--extender", "--host=0.0.0.0", f"--port={port}"),
            *("--kubeconfig", str(identity), "--serving-users=system:serviceaccount:default:caller"),
            f"--serving-certificate-file={pki.certificate(extended, 'kube-scheduler')}",
            f"--serving-key-file={pki.key(extended, 'kube-scheduler')}",
        ]
    )
    url = f"https://127.0.0.1:{port}"
    wait.until(
        lambda: health.probe(f"{url}/healthz"), what="a listening extender", timeout_s=PATIENCE_S, daemons=[daemon]
    )
    body = {"pod": {"metadata": {}, "spec": {}}, "nodenames": NODES[:1]}
    for path in ("/filter", "/prioritize", "/preempt", "/bind"):
        assert post(url + path, body)[0] == 401
        assert post(url + path, body, bearer="forged")[0] == 403
        assert post(url + path, body, bearer=token(extended, "stranger"))[0] == 403
    status, content = post(url + "/filter", body, bearer=token(extended, "caller"))
    assert status == 200
    assert "does not lead" in content["error"]
    daemon.stop()


def token(layout: Layout, account: str) -> str:
    """Create a token of an account in the default namespace."""
    return kubectl.run(layout, "-n", "default", "create", "token", account).strip()


def filter_error(pair: Pair) -> str:
    """Call /filter of a pair for an ordinary pod; return the error, empty if the extender decides."""
    body = {"pod": {"metadata": {}, "spec": {}}, "nodenames": NODES[:1]}
    status, content = post(f"{pair.url}/filter", body, certificate=pair.certificate if pair.tls else None)
    assert status == 200
    return str(content.get("error", ""))


def test_pair_with_the_leading_kube_scheduler_decides(
    extended: Layout, standby: Pair, make: Callable[[str], Namespace]
) -> None:
    """The other extender refuses to decide. When the leading pair is killed it takes over, here with mutual TLS."""
    namespace = make("failover")
    first, second = Pair(extended, 0), standby
    assert "does not lead" in filter_error(second)
    assert filter_error(first) == ""
    namespace.create(pod("before", gpu=1, gpumem=1000))
    all_bound(namespace, 1)
    first.kill()
    began = time.monotonic()
    namespace.create(pod("after", gpu=1, gpumem=1000))
    all_bound(namespace, 2)
    log.info("bound by the other pair %.1f s after the kill", time.monotonic() - began)
    wait.until(lambda: filter_error(second) == "", what="the second pair leads", timeout_s=PATIENCE_S)
    leader = client(extended).get("leadership", "tranche-scheduler", namespace="tranche-system")["spec"]["identity"]
    assert leader.startswith(second.host)
    # When it is back it is the standby, because the other kube-scheduler leads.
    first.start()
    assert "does not lead" in filter_error(first)


def test_every_extender_request_is_covered_by_a_rule(extended: Layout, logged_before: int) -> None:
    """The roles granted every request of the extender, and every right that extender mode adds was used."""
    objects = [
        each
        for text in (
            kubectl.run(extended, "kustomize", str(ROOT / "base")),
            (ROOT / "extender" / "rbac.yaml").read_text(),
        )
        for each in manifests.read(text)
        if not each.get("roleRef", {}).get("name", "").startswith("system:")
    ]
    granted = rights.granted(objects, [audit.SCHEDULER])[audit.SCHEDULER]
    made = rights.requests(extended.audit_log, [audit.SCHEDULER], since=logged_before)
    added = {right for right in granted if right.role == "tranche-kube-scheduler"}
    assert added
    assert all(any(right.covers(request) for request in made) for right in added)
    # No request was forbidden.
    forbidden = {request for request in made if request.decision != "allow"}
    assert not forbidden
