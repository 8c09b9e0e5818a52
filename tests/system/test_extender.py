"""Behind a stock kube-scheduler: its predicates and our cards, in one Binding; two pairs of which one decides."""

from __future__ import annotations

import json
import logging
import ssl
import subprocess
import sys
import time
import urllib.error
import urllib.request
from collections import Counter
from typing import TYPE_CHECKING, Any

import pytest
import yaml

from allocation.card_table import MEMORY
from lab import cluster, health, kubeconfig, kubectl, pki, wait
from lab.layout import PORT_BLOCK, Layout, Port
from lab.manifests import ROOT
from lab.processes import Daemon
from tests.conftest import BASE_PORT
from tests.system import audit, pairs, rights, truth
from tests.system.conftest import PATIENCE_S, Namespace, pod
from tests.system.pairs import Pair

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

log = logging.getLogger(__name__)
pytestmark = [pytest.mark.apiserver, pytest.mark.timeout(600)]
NODES = [f"n-{number:03}" for number in range(100)]
ZONE_A, TAINTED = NODES[:20], NODES[90:]
LOCK = "hami.io/mutex.lock"


@pytest.fixture(scope="module")
def extended(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Layout]:
    """100 nodes with 8 cards each: 20 in zone a, 10 tainted; and one pair."""
    if subprocess.run(["unshare", "--uts", "true"], capture_output=True, check=False).returncode:
        pytest.skip("a host name of its own for each pair needs root")
    layout = Layout(root=tmp_path_factory.mktemp("extended"), base_port=BASE_PORT + 4 * PORT_BLOCK)
    try:
        pairs.up(layout, NODES)
        kubectl.run(layout, "label", "node", *ZONE_A, "zone=a")
        kubectl.run(layout, "label", "node", *TAINTED, "dedicated=yes")
        kubectl.run(layout, "taint", "node", *TAINTED, "dedicated=yes:NoSchedule")
        Pair(layout, 0).start()
        yield layout
    finally:
        cluster.down(layout)


@pytest.fixture
def make(extended: Layout) -> Iterator[Callable[[str], Namespace]]:
    """Make opted-in namespaces; their pods are gone before the next test begins."""
    made: list[Namespace] = []

    def make(name: str) -> Namespace:
        labels = {"gpu.scheduling/injection": "enabled"}
        kubectl.apply(extended, {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": name, "labels": labels}})
        wait.until(
            lambda: kubectl.run(extended, "-n", name, "get", "serviceaccount", "default", "--ignore-not-found"),
            what=f"ServiceAccount default in {name}",
            timeout_s=PATIENCE_S,
        )
        made.append(Namespace(extended, name))
        return made[-1]

    yield make
    for each in made:
        kubectl.run(extended, "delete", "--raw", f"/api/v1/namespaces/{each.name}/pods")
        wait.until(lambda each=each: not each.pods(), what="the pods' end", timeout_s=PATIENCE_S)


def decisions(pair: Pair) -> Counter[str]:
    """Answer the extender's decisions by outcome: `waiting` is a /bind that was refused."""
    opener = urllib.request.build_opener(urllib.request.ProxyHandler({}))
    with opener.open(f"{pair.url}/metrics", timeout=5) as answer:
        lines = answer.read().decode().splitlines()
    found = (
        line.split('outcome="')[1].split('"} ') for line in lines if line.startswith("tranche_scheduler_decisions_t")
    )
    return Counter({outcome: int(float(value)) for outcome, value in found})


def all_bound(namespace: Namespace, count: int, *, patience_s: float = 4 * PATIENCE_S) -> list[dict[str, Any]]:
    """Wait until `count` pods have a node, and answer them."""

    def enough() -> list[dict[str, Any]] | None:
        found = [each for each in namespace.pods() if each["spec"].get("nodeName")]
        return found if len(found) == count else None

    return wait.until(enough, what=f"{count} bound pods", timeout_s=patience_s)


def test_five_hundred_fractional_pods(extended: Layout, make: Callable[[str], Namespace]) -> None:
    """All are bound, kube-scheduler's nodeSelector, taints and CPU hold, every allocation comes with its Binding."""
    namespace = make("fractional")
    pods = []
    for number in range(500):
        made = pod(f"p-{number}", gpu=1, gpumem=(number % 7 + 1) * 2000, gpucores=10)
        spec = made["spec"]
        if number < 100:
            spec["nodeSelector"] = {"zone": "a"}
        elif number < 150:
            spec["nodeSelector"] = {"dedicated": "yes"}
            spec["tolerations"] = [{"key": "dedicated", "operator": "Exists"}]
        elif number < 200:
            spec["containers"][0]["resources"]["requests"] = {"cpu": "40"}  # a node has 64
        pods.append(made)
    began = time.monotonic()
    namespace.create(*pods)
    bound = {each["metadata"]["name"]: each for each in all_bound(namespace, 500)}
    log.info("500 pods in %.1f s: %s", time.monotonic() - began, decisions(Pair(extended, 0)))

    homes = [bound[f"p-{number}"]["spec"]["nodeName"] for number in range(500)]
    assert set(homes[:100]) <= set(ZONE_A)
    assert set(homes[100:150]) <= set(TAINTED)
    assert set(homes[150:]).isdisjoint(TAINTED)
    assert max(Counter(homes[150:200]).values()) == 1
    truth.recount(extended)
    for each in bound.values():
        annotations = each["metadata"]["annotations"]
        assert json.loads(annotations["gpu.scheduling/allocation"])["node"] == each["spec"]["nodeName"]

    written = Counter(
        audit.what(each) for each in audit.writes(extended, namespace=namespace.name, user=audit.SCHEDULER)
    )
    assert written["pods/binding"] == 500
    assert set(written) <= {"pods/binding", "events", "pods/status"}
    for node in kubectl.get(extended, "nodes")["items"]:
        assert LOCK not in node["metadata"].get("annotations", {})


def test_whole_cards_to_the_last(extended: Layout, make: Callable[[str], Namespace]) -> None:
    """160 cards in zone a for 160 pods: those that met another on their card are refused, try again, and get theirs."""
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
    # And one more waits, with every node's reason, and has its card when another pod leaves.
    late = pod("late", gpu=1)
    late["spec"]["nodeSelector"] = {"zone": "a"}
    namespace.create(late)
    assert "20 8/8 CardInsufficientMemory" in namespace.unplaced("late")
    namespace.kubectl("delete", "pod", "p-7", "--wait=true")
    wait.until(lambda: namespace.pod("late")["spec"].get("nodeName"), what="late bound", timeout_s=PATIENCE_S)


def ask(
    url: str, body: dict[str, Any], *, bearer: str = "", certificate: tuple[Path, Path] | None = None
) -> tuple[int, dict[str, Any]]:
    """Post to an extender; answers status and JSON, nothing where it is none."""
    tls = ssl.create_default_context()
    tls.check_hostname, tls.verify_mode = False, ssl.CERT_NONE
    if certificate is not None:
        tls.load_cert_chain(*certificate)
    headers = {"Authorization": f"Bearer {bearer}"} if bearer else {}
    request = urllib.request.Request(url, data=json.dumps(body).encode(), headers=headers)  # noqa: S310 -- our own
    opener = urllib.request.build_opener(urllib.request.ProxyHandler({}), urllib.request.HTTPSHandler(context=tls))
    try:
        with opener.open(request, timeout=10) as answer:
            return answer.status, json.loads(answer.read())
    except urllib.error.HTTPError as error:
        return error.code, {}


def test_bind_is_no_way_around_anything(extended: Layout, make: Callable[[str], Namespace]) -> None:
    """Who reaches it can have bound what kube-scheduler could have bound, and nothing else; nothing is held after."""
    namespace = make("around")
    url = f"{Pair(extended, 0).url}/bind"
    foreign = {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "foreign"}}
    # Of another scheduler: nobody of ours may bind it.
    spec = pod("foreign")["spec"]
    namespace.create({**foreign, "spec": {**spec, "schedulerName": "batch"}}, pod("waits", gpu=1, gpumem=999999))
    namespace.unplaced("waits")

    def told(name: str, *, uid: str = "", node: str = NODES[0]) -> str:
        uid = uid or namespace.pod(name)["metadata"]["uid"]
        body = {"PodName": name, "PodNamespace": namespace.name, "PodUID": uid, "Node": node}
        status, answer = ask(url, body)
        assert status == 200
        return str(answer["error"])

    assert "schedulerName is batch" in told("foreign")
    assert "CardInsufficientMemory" in told("waits")
    assert "another pod has the name now" in told("waits", uid="00000000-0000-0000-0000-000000000000")
    assert "no node ghost" in told("waits", node="ghost")
    assert "there is no pod" in told("nobody", uid="x")
    namespace.create(pod("bound", gpu=1, gpumem=1000))
    (bound,) = all_bound(namespace, 1)
    assert f"bound to {bound['spec']['nodeName']}" in told("bound", node=NODES[5])
    assert namespace.pod("bound")["spec"]["nodeName"] == bound["spec"]["nodeName"]
    truth.recount(extended)


def test_strangers_do_not_call_an_exposed_extender(extended: Layout) -> None:
    """Tokens are reviewed by the API server: of the allowed account, of another one, forged, none."""
    for name in ("caller", "stranger"):
        account = {"apiVersion": "v1", "kind": "ServiceAccount", "metadata": {"name": name, "namespace": "default"}}
        kubectl.apply(extended, account)
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
    wait.until(lambda: health.probe(f"{url}/healthz"), what="it listens", timeout_s=PATIENCE_S, daemons=[daemon])
    body = {"pod": {"metadata": {}, "spec": {}}, "nodenames": NODES[:1]}
    for path in ("/filter", "/prioritize", "/bind"):
        assert ask(url + path, body)[0] == 401
        assert ask(url + path, body, bearer="forged")[0] == 403
        assert ask(url + path, body, bearer=token(extended, "stranger"))[0] == 403
    status, answer = ask(url + "/filter", body, bearer=token(extended, "caller"))
    assert status == 200
    assert "does not lead" in answer["error"]
    daemon.stop()


def token(layout: Layout, account: str) -> str:
    """Make a token of an account in the default namespace."""
    return kubectl.run(layout, "-n", "default", "create", "token", account).strip()


def filter_error(pair: Pair) -> str:
    """Ask the extender of a pair about an ordinary pod; answer its error, empty where it decides."""
    body = {"pod": {"metadata": {}, "spec": {}}, "nodenames": NODES[:1]}
    status, answer = ask(f"{pair.url}/filter", body, certificate=pair.certificate if pair.tls else None)
    assert status == 200
    return str(answer.get("error", ""))


def test_the_pair_whose_kube_scheduler_leads_decides(extended: Layout, make: Callable[[str], Namespace]) -> None:
    """The other extender refuses; when the leading pair is killed it takes over and binds, here by mutual TLS."""
    namespace = make("failover")
    first, second = Pair(extended, 0), Pair(extended, 1, tls=True)
    second.start()
    assert "does not lead" in filter_error(second)
    assert filter_error(first) == ""
    namespace.create(pod("before", gpu=1, gpumem=1000))
    all_bound(namespace, 1)
    first.kill()
    began = time.monotonic()
    namespace.create(pod("after", gpu=1, gpumem=1000))
    all_bound(namespace, 2)
    log.info("bound by the other pair %.1f s after the kill", time.monotonic() - began)
    assert filter_error(second) == ""
    leader = kubectl.get(extended, "-n", "tranche-system", "leadership", "tranche-scheduler")["spec"]["identity"]
    assert leader.startswith(second.host)
    # Back again it stands by: kube-scheduler beside the other leads.
    first.start()
    assert "does not lead" in filter_error(first)


def test_every_request_had_its_rule(extended: Layout) -> None:
    """What our half asked for in this run was granted by our roles, and what they add to the loop's was used."""
    objects = [
        each
        for text in (
            kubectl.run(extended, "kustomize", str(ROOT / "base")),
            (ROOT / "extender" / "rbac.yaml").read_text(),
        )
        for each in yaml.safe_load_all(text)
        if not each.get("roleRef", {}).get("name", "").startswith("system:")
    ]
    granted = rights.granted(objects, [audit.SCHEDULER])[audit.SCHEDULER]
    made = rights.requests(extended.audit_log, [audit.SCHEDULER])
    added = {right for right in granted if right.role == "tranche-kube-scheduler"}
    assert added
    assert all(any(right.covers(request) for request in made) for right in added)
    # Nothing of it was refused: an API server that has just started may refuse what it allows a moment later.
    refused = {request for request in made if request.decision != "allow"}
    assert not refused
