"""Nodes whose cards a stock kube-scheduler 1.37 allocates by DRA, from the slices that their agents publish."""

from __future__ import annotations

import itertools
import json
import time
from contextlib import contextmanager
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING, Any

import pytest

from agent.dra import resource_slice
from agent.dra.node_view import NodeView
from agent.report import DeviceReport, NodeReport
from allocation.inventory import Card
from cluster.api import Api
from cluster.connect import connect
from lab import kubeconfig, kubectl, wait
from lab.client import client
from lab.connection import RefusedError
from lab.errors import LabError
from lab.processes import Daemon
from tests.agent.support.cluster_view import as_scheduler
from tests.agent.support.dra_node import PlayedKubelet
from tests.dra.conftest import ALONE, NODES
from tests.support import identities, namespaces
from tests.support.depth import repetitions
from tests.support.patience import PATIENCE_S
from tests.system.conftest import pod
from tests.system.support import dra_nodes as dra

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from lab.layout import Layout
    from tests.system.conftest import Namespace

pytestmark = [pytest.mark.apiserver, pytest.mark.dra]
NODE, OTHER = NODES
_MOST_WAITING = 5
# Longer than a node takes back to the ledger that does not wait for claims.
_LASTS_S = 6.0


@contextmanager
def of_dra(layout: Layout, node: str) -> Iterator[None]:
    """Take a node to DRA for the block."""
    api = client(layout)
    dra.want(api, node, "dra")
    dra.until(api, node, "dra")
    yield
    dra.want(api, node, None)


@pytest.fixture(scope="module")
def dra_node(changing_nodes: Layout) -> Iterator[str]:
    """A node of DRA; another one stays with the ledger."""
    with of_dra(changing_nodes, NODE):
        yield NODE


# ---- what kube-scheduler does with the slice -------------------------------------------------------------------------


def test_parts_of_a_card_are_given_by_memory(claimant: Namespace, dra_node: str) -> None:
    """The second fits beside the first, and the third gets the next card."""
    cards = [
        dra.claimed(claimant, f"c{memory}", dra_node, dra.request(memory=f"{memory}Mi"))
        for memory in (50_000, 30_000, 10_000)
    ]
    assert cards == [["gpu-0"], ["gpu-0"], ["gpu-1"]]


def test_parts_of_a_card_are_given_by_compute(claimant: Namespace, dra_node: str) -> None:
    """Three thirds of a card are one card."""
    cards = [
        dra.claimed(claimant, f"c{number}", dra_node, dra.request(memory="1000Mi", cores="30")) for number in range(4)
    ]
    assert cards == [["gpu-0"]] * 3 + [["gpu-1"]]


def test_a_card_is_shared_by_as_many_as_it_has_slots(claimant: Namespace, dra_node: str) -> None:
    """Ten, whatever memory they have."""
    cards = [dra.claimed(claimant, f"c{number}", dra_node, dra.request(memory="10Mi")) for number in range(11)]
    assert cards == [["gpu-0"]] * 10 + [["gpu-1"]]


def test_a_request_without_capacity_has_a_whole_card(claimant: Namespace, dra_node: str) -> None:
    """Nothing is left of it for others."""
    assert dra.claimed(claimant, "whole", dra_node) == ["gpu-0"]
    assert dra.claimed(claimant, "part", dra_node, dra.request(memory="1Mi")) == ["gpu-1"]


def test_two_parts_are_of_two_cards(claimant: Namespace, dra_node: str) -> None:
    """By a constraint that their UUIDs differ."""
    distinct = [{"requests": ["gpu"], "distinctAttribute": f"{dra.CLASS}/uuid"}]
    cards = dra.claimed(claimant, "two", dra_node, dra.request(count=2, memory="3000Mi"), constraints=distinct)
    assert cards == ["gpu-0", "gpu-1"]


def test_cards_are_of_one_island(claimant: Namespace, dra_node: str) -> None:
    """By a constraint that they have the same one: the first has one free card only."""
    assert dra.claimed(claimant, "first", dra_node) == ["gpu-0"]
    same = [{"requests": ["gpu"], "matchAttribute": f"{dra.CLASS}/nvlinkIsland"}]
    assert dra.claimed(claimant, "pair", dra_node, dra.request(count=2), constraints=same) == ["gpu-2", "gpu-3"]


def test_part_of_whichever_model_is_there(claimant: Namespace, dra_node: str) -> None:
    """One alternative for each model, the first of which no node has."""

    def alternative(name: str, model: str) -> dict[str, Any]:
        selector = {"cel": {"expression": f'device.attributes["{dra.CLASS}"].model == "{model}"'}}
        return {"name": name, **dra.request(memory="10Gi")["exactly"], "selectors": [selector]}

    models = [alternative("a100", "NVIDIA A100-SXM4-40GB"), alternative("h100", dra.MODEL)]
    assert dra.claimed(claimant, "c", dra_node, {"name": "gpu", "firstAvailable": models}) == ["gpu-0"]
    (result,) = claimant.get("resourceclaims", "c")["status"]["allocation"]["devices"]["results"]
    assert result["request"] == "gpu/h100"


def test_cordoned_card_gets_no_new_claim(changing_nodes: Layout, claimant: Namespace, dra_node: str) -> None:
    """The pool keeps its generation: it has the same devices."""
    api = client(changing_nodes)
    name = f"gpu.scheduling-{dra_node}"
    before = api.get("resourceslices", name)["spec"]["pool"]

    def cordon(uuid: str | None, *, taints: bool) -> None:
        api.patch("nodes", dra_node, {"metadata": {"annotations": {"hami.io/device-cordon": uuid}}})
        api.until(
            lambda slices: ("taints" in slices[name]["spec"]["devices"][0]) == taints, "resourceslices", what="taint"
        )

    cordon(f"GPU-{dra_node}-0", taints=True)
    assert dra.claimed(claimant, "c", dra_node, dra.request(memory="1Mi")) == ["gpu-1"]
    assert api.get("resourceslices", name)["spec"]["pool"] == before
    cordon(None, taints=False)


def test_slice_is_written_only_when_it_differs(changing_nodes: Layout, dra_node: str) -> None:
    """The API server's form of it is recognized, though the agent has looked again many times by now."""
    log = Daemon(changing_nodes, "agent").log.read_text(encoding="utf-8")
    # At first, and for the cordon of the last test and its end.
    assert log.count(f"node {dra_node}: its ResourceSlice is published") == 3


# ---- the ledger ------------------------------------------------------------------------------------------------------


def test_ledger_gives_out_no_card_of_the_node(claimant: Namespace, dra_node: str) -> None:
    """The pod's condition says who does; other nodes take it."""
    annotations = claimant.api.get("node", dra_node)["metadata"]["annotations"]
    assert annotations["hami.io/node-nvidia-register"] == "[]"
    claimant.create(pod("p", node=dra_node, gpu=1, gpumem=1000))
    assert "Kubernetes allocates the node's cards by DRA" in claimant.unplaced("p")
    claimant.create(pod("q", node=OTHER, gpu=1, gpumem=1000))
    (placed,) = claimant.placed(1)
    assert placed["metadata"]["name"] == "q"


def test_node_that_has_pods_waits_for_them(changing_nodes: Layout, claimant: Namespace) -> None:
    """It takes no more, and has no slice before the last one has ended; then the leader confirms it."""
    api = client(changing_nodes)
    claimant.create(pod("p", node=OTHER, gpu=1, gpumem=1000))
    claimant.placed(1)
    dra.want(api, OTHER, "dra")
    dra.until(api, OTHER, "draining")
    claimant.create(pod("q", node=OTHER, gpu=1, gpumem=1000))
    assert "handed over to DRA" in claimant.unplaced("q")
    assert api.find("resourceslices", f"gpu.scheduling-{OTHER}") is None
    assert "drained" not in api.get("gpunodestatus", OTHER)["spec"]
    claimant.delete("pods", "p")
    dra.until(api, OTHER, "dra")
    drained = api.get("gpunodestatus", OTHER)["spec"]["drained"]
    leader = api.get("leadership", "tranche-scheduler", namespace="tranche-system")["spec"]
    assert drained["leader"] == f"{leader['epoch']}/{leader['identity']}"
    dra.want(api, OTHER, None)
    claimant.placed(1)


def test_nobody_but_the_scheduler_confirms_a_drain(changing_nodes: Layout) -> None:
    """A node whose pods have not ended must not be handed over."""
    drained = {"spec": {"drained": {"drain": "d", "leader": "l"}}}
    with pytest.raises(RefusedError, match="written by the Tranche scheduler"):
        client(changing_nodes).patch("gpunodestatus", OTHER, drained)


async def test_agent_believes_the_leader_of_this_moment_only(changing_nodes: Layout) -> None:
    """With the rights that the component gives it, by which it also reads all else that it decides by."""
    api, scheduler = client(changing_nodes), as_scheduler(changing_nodes)
    leader = api.get("leadership", "tranche-scheduler", namespace="tranche-system")["spec"]
    file = kubeconfig.service_account_kubeconfig(
        changing_nodes, namespace="tranche-system", name="tranche-agent", node=OTHER
    )
    async with connect(program="test", kubeconfig=str(file)) as connection:
        view = NodeView(Api(connection), OTHER)
        assert not await view.is_confirmed("d")
        for epoch, is_believed in ((leader["epoch"] - 1, False), (leader["epoch"], True)):
            drained = {"drain": "d", "leader": f"{epoch}/{leader['identity']}"}
            scheduler.patch("gpunodestatus", OTHER, {"spec": {"drained": drained}})
            assert await view.is_confirmed("d") == is_believed
        assert await view.unsupported() == ""
        assert await view.allocated_pod() == ""
        assert await view.claims() == []
        assert await view.slice() is None


# ---- who may claim ---------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("make", [dra.claim, dra.template])
def test_class_is_for_namespaces_that_are_opted_in(changing_nodes: Layout, claimant: Namespace, make: Any) -> None:
    """In a claim and in a template, also in an alternative; claims of other classes are none of our affair."""
    api = client(changing_nodes)
    plain = f"plain-{claimant.name}"
    namespaces.create(changing_nodes, plain, {})
    alternative = {"name": "gpu", "firstAvailable": [{"name": "one", "deviceClassName": dra.CLASS}]}
    for requests in ((), (alternative,)):
        with pytest.raises(RefusedError, match="is for namespaces with the label"):
            api.create(make("c", *requests), namespace=plain, dry_run=True)
        api.create(make("c", *requests), namespace=claimant.name, dry_run=True)
    other = {"name": "gpu", "exactly": {"deviceClassName": "other.example.com"}}
    api.create(make("c", other), namespace=plain, dry_run=True)


def test_agent_publishes_for_its_own_node_and_driver_only(changing_nodes: Layout) -> None:
    """Its token is bound to its node; it may not take the cards of other drivers from their claims either."""
    agent = identities.process(changing_nodes, "agent", node=NODE)
    own, foreign = (resource_slice.body(NodeReport(node, (DeviceReport(Card("u", 0, 1)),))) for node in NODES)
    other = {**own, "metadata": {"name": "other"}, "spec": {**own["spec"], "driver": "other.example.com"}}
    agent.apply(own, dry_run=True)
    for each in (foreign, other):
        with pytest.raises(RefusedError, match="no ResourceSlice of another node or driver"):
            agent.apply(each, dry_run=True)
    client(changing_nodes).create(other)
    with pytest.raises(RefusedError, match="no ResourceSlice of another node or driver"):
        agent.delete("resourceslices", "other")
    client(changing_nodes).delete("resourceslices", "other")


@pytest.mark.parametrize("key", [{}, {"key": "gpu.scheduling/draining"}, {"key": "gpu.scheduling/cordoned"}])
def test_taints_of_cards_are_tolerated_by_no_claim(claimant: Namespace, key: dict[str, str]) -> None:
    """A node could never come back; the tolerations of others are admitted."""
    request = dra.request()
    request["exactly"]["tolerations"] = [{**key, "operator": "Exists"}]
    with pytest.raises(RefusedError, match="the claim tolerates the taints"):
        claimant.create(dra.claim("c", request))
    request["exactly"]["tolerations"] = [{"key": "other", "operator": "Exists"}]
    claimant.create(dra.claim("c", request))


def test_whole_card_is_an_easy_mistake(changing_nodes: Layout, claimant: Namespace) -> None:
    """A warning, which kubectl prints; none with an amount of memory."""

    def create(content: dict[str, Any]) -> str:
        options = ("-n", claimant.name, "create", "--dry-run=server", "--warnings-as-errors", "-f", "-")
        return kubectl.run(changing_nodes, *options, stdin=json.dumps(content))

    with pytest.raises(LabError, match="without capacity.requests.memory gets a whole card"):
        create(dra.claim("c"))
    create(dra.claim("c", dra.request(memory="10Gi")))


# ---- from one allocator to the other ---------------------------------------------------------------------------------


class Load:
    """Pods of the ledger and pods with claims, which come all the time and have a node for a while.

    Attributes:
        seen: how many had one, of each kind.
    """

    def __init__(self, tenant: Namespace, node: str) -> None:
        self._tenant = tenant
        self._node = node
        self._serial = itertools.count()
        self._since: dict[str, float] = {}
        self.seen = {"ledger": 0, "dra": 0}
        tenant.create(dra.template("part", dra.request(memory="100Mi")))

    def go_on(self) -> None:
        """Let pods come and others go, and check that the node is in one world."""
        waiting = {"ledger": 0, "dra": 0}
        for each in self._tenant.pods():
            kind = "dra" if each["spec"].get("resourceClaims") else "ledger"
            if not each["spec"].get("nodeName"):
                waiting[kind] += 1
                continue
            name = each["metadata"]["name"]
            if name not in self._since:
                self.seen[kind] += 1
            lasts = time.monotonic() - self._since.setdefault(name, time.monotonic())
            if lasts > _LASTS_S and "deletionTimestamp" not in each["metadata"]:
                self._tenant.api.delete("pods", name, namespace=self._tenant.name, grace_s=1, wait=False)
        number = next(self._serial)
        if waiting["ledger"] < _MOST_WAITING:
            self._tenant.create(pod(f"ledger-{number}", node=self._node, gpu=1, gpumem=100))
        if waiting["dra"] < _MOST_WAITING:
            self._tenant.create(dra.pod(f"dra-{number}", node=self._node, resourceClaimTemplateName="part"))
        assert [*dra.in_both_worlds(self._tenant.api, self._node)] == []

    def until(self, allocator: str) -> None:
        """Go on until the node has an allocator, and then until it has given out cards."""

        def has_allocator() -> bool:
            self.go_on()
            status = self._tenant.api.get("gpunodestatus", self._node)["status"]
            return bool(status.get("allocator", "ledger") == allocator)

        wait.until(has_allocator, what=f"allocator {allocator}", timeout_s=PATIENCE_S)
        before = self.seen[allocator]

        def has_given() -> bool:
            self.go_on()
            return self.seen[allocator] > before + _MOST_WAITING

        wait.until(has_given, what=f"pods of {allocator}", timeout_s=PATIENCE_S)


@pytest.mark.timeout(3600)
def test_no_card_is_in_both_worlds_while_a_node_changes_under_load(changing_nodes: Layout, claimant: Namespace) -> None:
    """A node goes to DRA and back again and again, while pods of both kinds wait for it, come and go."""
    api = client(changing_nodes)
    load = Load(claimant, OTHER)
    load.until("ledger")
    for _ in range(repetitions(3, 50)):
        dra.want(api, OTHER, "dra")
        load.until("dra")
        dra.want(api, OTHER, None)
        load.until("ledger")
    assert api.find("resourceslices", f"gpu.scheduling-{OTHER}") is None


# ---- the kubelet's plugin --------------------------------------------------------------------------------------------


async def test_plugin_hands_out_what_kube_scheduler_allocated(changing_nodes: Layout, claimant: Namespace) -> None:
    """The kubelet is played; the claim, its allocation and the agent are real, which restarts in between.

    Back with the ledger the node hands out nothing, whatever a claim says.
    """
    api = client(changing_nodes)
    with TemporaryDirectory(prefix="dra-") as name:
        folder = Path(name)
        (folder / "registry").mkdir()
        agent = dra.start_agent(changing_nodes, ALONE, folder)
        kubelet = PlayedKubelet(folder / "registry", namespace=claimant.name)
        dra.want(api, ALONE, "dra")
        dra.until(api, ALONE, "dra")
        assert dra.claimed(claimant, "c", ALONE, dra.request(memory="10Gi", cores="30")) == ["gpu-0"]
        found = claimant.get("resourceclaims", "c")
        uid, results = found["metadata"]["uid"], found["status"]["allocation"]["devices"]["results"]

        for _ in range(2):
            answer = (await kubelet.prepare("c", uid=uid))[uid]
            assert not answer.error
            (device,) = answer.devices
            assert [*device.cdi_device_ids] == [f"nvidia.com/gpu=GPU-{ALONE}-0", f"gpu.scheduling/claim={uid}-gpu"]
            assert device.share_id == results[0]["shareID"]
            (file,) = (folder / "cdi").glob("*.json")
            assert "CUDA_DEVICE_MEMORY_LIMIT_0=10240m" in file.read_text()
            assert "CUDA_DEVICE_SM_LIMIT=30" in file.read_text()
            agent.stop()
            agent = dra.start_agent(changing_nodes, ALONE, folder)
        path = "../../x"
        assert await kubelet.unprepare("c", uid=path) == {path: f"{path!r} is not the UID of a claim"}
        assert await kubelet.unprepare("c", uid=uid) == {uid: ""}
        assert not [*(folder / "cdi").glob("*.json")]

        dra.remove(claimant)
        dra.want(api, ALONE, None)
        dra.until(api, ALONE, "ledger")
        claimant.create(dra.claim("late", dra.request(memory="10Gi")))
        late = claimant.patch("resourceclaims", "late", {"status": stale(found)}, subresource="status")
        uid = late["metadata"]["uid"]
        assert "does not give its cards to claims now" in (await kubelet.prepare("late", uid=uid))[uid].error
        claimant.patch("resourceclaims", "late", {"status": {"allocation": None}}, subresource="status")
        agent.stop()


def stale(found: Mapping[str, Any]) -> dict[str, Any]:
    """Return the status of a claim that kube-scheduler allocates by a slice that is gone."""
    return {"allocation": found["status"]["allocation"]}
