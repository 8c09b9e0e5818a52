"""Roles grant what the processes use, and nothing else: the audit log of the run is held against the manifests.

Rights that are used only when something has gone wrong are used here, by making it go wrong: who leads is forgotten, a
node's report is tampered with, the webhook's Secret is lost and then put back from a backup, a pod waits twice for the
same reason, a Binding meets a pod that has a node already, and HAMi's plugin serves a node.
"""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

import msgspec
import pytest
import yaml

from allocation.names import SYSTEM_NAMESPACE
from allocation.request import PodRequest
from cluster.api import Api
from cluster.connection import connect
from lab import components, kubeconfig, kubectl, wait
from lab.errors import LabError
from lab.manifests import ROOT
from lab.processes import Daemon
from scheduler.binder import Binder, Outcome
from scheduler.cycle import Chosen
from scheduler.objects import Pod
from tests.system import hami_nodes, rights
from tests.system.conftest import PATIENCE_S, Namespace, pod

if TYPE_CHECKING:
    from pathlib import Path

    from lab.layout import Layout

pytestmark = [pytest.mark.apiserver, pytest.mark.timeout(300)]
PREFIX = f"system:serviceaccount:{SYSTEM_NAMESPACE}:tranche-"
FLEET_AGENT = "system:serviceaccount:tranche-lab:fleet-agent"  # the lab's, with the agent's roles
ACCOUNTS = (f"{PREFIX}webhook", f"{PREFIX}scheduler", f"{PREFIX}agent", FLEET_AGENT)
NODE = "gpu-sim-2"


@pytest.fixture(scope="module")
def granted(tranche: Layout, tmp_path_factory: pytest.TempPathFactory) -> dict[str, frozenset[rights.Right]]:
    """The rights of each of our accounts, by the manifests, those for nodes of HAMi's plugin included."""
    objects = [
        each
        for folder in ("base", "lab")
        for each in yaml.safe_load_all(kubectl.run(tranche, "kustomize", str(ROOT / folder)))
    ]
    objects += hami_nodes.component(tranche, tmp_path_factory.mktemp("component"))
    return rights.granted(objects, ACCOUNTS)


def system(layout: Layout, *arguments: str, stdin: str | None = None) -> str:
    """Run kubectl as administrator in the namespace of our own objects."""
    return kubectl.run(layout, "-n", SYSTEM_NAMESPACE, *arguments, stdin=stdin)


def exists(layout: Layout, *what: str) -> bool:
    """Whether there is such an object in the namespace of our own objects."""
    return bool(system(layout, "get", *what, "--ignore-not-found", "-o", "name"))


def forget_who_leads(layout: Layout) -> None:
    """Delete the Leadership, which the leader makes anew, then the Lease, which starts another term."""
    system(layout, "delete", "leadership", "tranche-scheduler")
    wait.until(lambda: exists(layout, "leadership", "tranche-scheduler"), what="Leadership", timeout_s=PATIENCE_S)

    def epoch() -> int:
        found = kubectl.get(layout, "-n", SYSTEM_NAMESPACE, "leadership", "tranche-scheduler")
        return int(found["spec"]["epoch"])

    before = epoch()
    system(layout, "delete", "lease", "tranche-scheduler")
    wait.until(lambda: epoch() > before, what="a new term", timeout_s=PATIENCE_S)


def tamper_with_a_report(layout: Layout) -> None:
    """Change a node's annotation and delete its report and its heartbeat: the agent finds out and writes them again."""
    kubectl.run(layout, "annotate", "node", NODE, "hami.io/node-nvidia-register=[]", "--overwrite")
    kubectl.run(layout, "delete", "gpunodestatus", NODE)
    system(layout, "delete", "lease", f"gpu-{NODE}")

    def is_whole() -> bool:
        found = kubectl.run(layout, "get", "gpunodestatus", NODE, "--ignore-not-found", "-o", "json")
        node = kubectl.get(layout, "node", NODE)
        return (
            bool(found)
            and json.loads(found).get("status", {}).get("total") == 8
            and node["metadata"]["annotations"]["hami.io/node-nvidia-register"] != "[]"
            and exists(layout, "lease", f"gpu-{NODE}")
        )

    wait.until(is_whole, what=f"the report of {NODE}", timeout_s=PATIENCE_S, daemons=[Daemon(layout, "agent")])


def lose_the_authority(layout: Layout) -> None:
    """Delete the webhook's Secret, which is made anew, and put the old one back: the newer authority is kept in it."""
    name = "tranche-webhook-ca"
    backup = kubectl.get(layout, "-n", SYSTEM_NAMESPACE, "secret", name)
    backup["metadata"] = {"name": name, "labels": backup["metadata"].get("labels", {})}

    def is_another() -> bool:
        if not exists(layout, "secret", name):
            return False
        now = kubectl.get(layout, "-n", SYSTEM_NAMESPACE, "secret", name)
        return bool(now["data"] != backup["data"])

    daemon = Daemon(layout, "webhook")
    daemon.stop()
    system(layout, "delete", "secret", name)
    components.start(layout, components.component(layout, "webhook"))
    wait.until(is_another, what="a new authority", timeout_s=PATIENCE_S, daemons=[daemon])
    system(layout, "replace", "-f", "-", stdin=json.dumps(backup))


def repeat_a_reason(namespace: Namespace) -> None:
    """Let a pod wait for one reason, then for another, then for the first again: its event is told once and counted."""
    namespace.create(pod("waits", node=NODE, gpu=1, gpumem=999999))
    first = namespace.unplaced("waits")
    try:
        kubectl.run(namespace.layout, "cordon", NODE)
        wait.until(lambda: namespace.unplaced("waits") != first, what="another reason", timeout_s=PATIENCE_S)
    finally:
        kubectl.run(namespace.layout, "uncordon", NODE)
    wait.until(lambda: namespace.unplaced("waits") == first, what="the first reason again", timeout_s=PATIENCE_S)


def ask_for_an_instance(namespace: Namespace, node: str) -> None:
    """Let a pod wait for a MIG instance that the agent must make first."""
    manifest = pod("sliced", node=node, gpu=1, gpumem=10000)
    manifest["metadata"]["annotations"] = {"nvidia.com/vgpu-mode": "mig", "nvidia.com/use-gpuuuid": f"GPU-{node}-1"}
    namespace.create(manifest)
    namespace.placed(1)
    namespace.kubectl("delete", "pod", "sliced")


async def bind_what_is_bound(namespace: Namespace) -> None:
    """As the scheduler, bind a pod that somebody else has bound: it looks at whose Binding that was."""
    namespace.create(pod("bound", node="gpu-sim-1"))
    (found,) = namespace.placed(1)
    identity = kubeconfig.service_account_kubeconfig(
        namespace.layout, namespace=SYSTEM_NAMESPACE, name="tranche-scheduler"
    )
    spec = kubectl.get(namespace.layout, "-n", SYSTEM_NAMESPACE, "leadership", "tranche-scheduler")["spec"]
    async with connect(kubeconfig=str(identity)) as connection:
        binder = Binder(Api(connection), token=f"{spec['epoch']}/{spec['identity']}", timeout_seconds=10)
        chosen = Chosen(node="gpu-sim-0", request=PodRequest(()), allocation=None, note="")
        result = await binder.bind(msgspec.convert(found, Pod), chosen)
    assert result.outcome is Outcome.TAKEN
    namespace.kubectl("delete", "pod", "bound", "--wait=true")


def bind_where_hamis_plugin_serves(namespace: Namespace, folder: Path) -> None:
    """Let a pod be bound to a node that has to be locked for it."""
    with hami_nodes.hami_nodes(namespace.layout, folder):
        namespace.create(pod("locks", node=hami_nodes.NODES[0], gpu=1, gpumem=100))
        namespace.placed(1)
        namespace.kubectl("delete", "pod", "locks", "--wait=true")


async def test_no_right_is_granted_that_nobody_uses(
    tranche: Layout,
    namespace: Namespace,
    mig_node: str,
    granted: dict[str, frozenset[rights.Right]],
    tmp_path: Path,
) -> None:
    """Every verb on every resource of every role was used in this run."""
    bind_where_hamis_plugin_serves(namespace, tmp_path)
    ask_for_an_instance(namespace, mig_node)
    await bind_what_is_bound(namespace)
    forget_who_leads(tranche)
    tamper_with_a_report(tranche)
    lose_the_authority(tranche)
    repeat_a_reason(namespace)
    every = frozenset().union(*granted.values())

    def unused() -> set[rights.Right]:
        made = rights.requests(tranche.audit_log, ACCOUNTS)
        return {
            right
            for right in every
            if not any(right in granted[request.user] and right.covers(request) for request in made)
        }

    try:
        wait.until(lambda: not unused(), what="every right used", timeout_s=PATIENCE_S)
    except LabError:
        assert [str(right) for right in sorted(unused())] == []


def test_every_request_was_allowed_by_a_rule(
    tranche: Layout, layout: Layout, granted: dict[str, frozenset[rights.Right]]
) -> None:
    """All that our processes asked for in this run, in either cluster: the API server says so, and the manifests do."""
    logs = [each.audit_log for each in (tranche, layout) if each.audit_log.exists()]
    made = {request for log in logs for request in rights.requests(log, ACCOUNTS)}
    assert made
    # An API server that has just started refuses everything until it has read the roles: what it allows later is fine.
    allowed = {msgspec.structs.replace(request, decision="allow") for request in made if request.decision != "allow"}
    assert sorted(allowed - made) == []
    assert [
        request for request in sorted(made) if not any(right.covers(request) for right in granted[request.user])
    ] == []


@pytest.mark.parametrize("process", ["webhook", "scheduler", "agent"])
def test_nobody_reads_secrets_but_the_webhook_its_own(tranche: Layout, process: str) -> None:
    """Neither elsewhere nor in our own namespace, neither one by one nor all."""

    def may(verb: str, what: str, *where: str) -> bool:
        try:
            told = kubectl.run(tranche, "auth", "can-i", verb, what, *where, "--as", f"{PREFIX}{process}")
        except LabError:
            return False
        return told.strip() == "yes"

    own = "secrets/tranche-webhook-ca"
    for verb in ("get", "list", "watch", "update", "patch", "delete", "deletecollection"):
        for where in (("-A",), ("-n", SYSTEM_NAMESPACE), ("-n", "kube-system"), ("-n", "default")):
            assert not may(verb, "secrets", *where)
            assert not may(verb, "secrets/other", *where)
            if where[1:] != (SYSTEM_NAMESPACE,) or verb not in ("get", "patch"):
                assert not may(verb, own, *where)
    assert may("get", own, "-n", SYSTEM_NAMESPACE) == (process == "webhook")
    assert may("create", "secrets", "-n", SYSTEM_NAMESPACE) == (process == "webhook")
    assert not may("create", "secrets", "-n", "default")


def test_roles_name_no_wildcard(granted: dict[str, frozenset[rights.Right]]) -> None:
    """A star would grant what nobody has thought of."""
    assert not [right for rights_ in granted.values() for right in rights_ if "*" in f"{right.verb}{right.resource}"]
