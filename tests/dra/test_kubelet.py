"""A node of DRA whose kubelet and container runtime are real: what containers get of a claim, and what is left of it.

CDI is containerd's own; cards are devices that work as `/dev/null`.
"""

from __future__ import annotations

import json
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

import pytest

from lab import binaries, fleet, real_node, wait
from lab import control_plane as control_plane_module
from lab.client import client
from lab.processes import Daemon
from tests.support import labs
from tests.support.patience import PATIENCE_S
from tests.system.support import dra_driver as driver
from tests.system.support import dra_nodes as dra
from tests.system.support import nvidia_software
from tests.system.support.plugin_mode import restart_kubelet
from tests.system.test_delivery import devices

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from lab.layout import Layout
    from tests.system.conftest import Namespace

pytestmark = [pytest.mark.apiserver, pytest.mark.kubelet, pytest.mark.dra]

# The kubelet deletes the slices of a driver that has been away for 30 s.
_SLICE_GOES_S = 30 + PATIENCE_S


@pytest.fixture(scope="module")
def cluster(node_support: None, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Layout]:
    """A cluster of Kubernetes 1.37, whose real node is one of DRA."""
    with labs.reserved("own_layout", tmp_path_factory) as layout:
        control_plane_module.up(layout, provide=binaries.provide_for_dra)
        real_node.up(layout, provide=binaries.provide_for_dra)
        cards = [fleet.card(layout.node_name, index) for index in range(dra.CARDS)]
        nvidia_software.write_specs(layout.cdi_specs, cards)
        dra.up(layout, "gpu-0")
        with registering(layout):
            dra.start_agent_of_real_node(layout)
            dra.want(client(layout), layout.node_name, "dra")
        dra.until(client(layout), layout.node_name, "dra")
        yield layout


@contextmanager
def registering(layout: Layout) -> Iterator[None]:
    """Wait until the kubelet has accepted the agent once more than before the block.

    It tries a pod whose claim was not prepared again after 60 to 90 s only.
    """
    log = Daemon(layout, dra.AGENT).log

    def registrations() -> int:
        return log.read_text(encoding="utf-8").count("registered with the kubelet") if log.exists() else 0

    before = registrations()
    yield
    wait.until(lambda: registrations() > before, what="a registered agent", timeout_s=PATIENCE_S)


@pytest.fixture
def claimant(cluster: Layout, request: pytest.FixtureRequest) -> Iterator[Namespace]:
    """A namespace that Tranche serves; its pods and claims are deleted after the test."""
    made = driver.namespace(cluster, request.node.name.replace("_", "-")[:60].strip("-"))
    yield made
    dra.remove(made)


def running(tenant: Namespace, name: str, **requests: str) -> dict[str, Any]:
    """Create a pod with a claim of its own, wait until it runs, and return it.

    Args:
        tenant: its namespace, which has a template `cards`.
        name: the pod's.
        requests: its containers, and the request of the claim that each of them names.
    """
    made = dra.pod(name, node=tenant.layout.node_name, resourceClaimTemplateName="cards")
    (container,) = made["spec"]["containers"]
    made["spec"]["containers"] = [
        {
            **container,
            "name": each,
            "command": ["sleep", "3600"],
            "env": [{"name": "CUDA_VISIBLE_DEVICES", "value": "forged"}, {"name": "OWN", "value": "kept"}],
            "resources": {"claims": [{"name": "cards", "request": of_claim}]},
        }
        for each, of_claim in requests.items()
    ]
    tenant.create(made)
    tenant.ready(name)
    return tenant.pod(name)


def environment(tenant: Namespace, name: str, container: str) -> dict[str, str]:
    """Return the variables of a running container that are about cards, or its own."""
    lines = tenant.kubectl("exec", name, "-c", container, "--", "env").splitlines()
    found = dict(line.split("=", 1) for line in lines)
    return {key: value for key, value in found.items() if key.startswith(("CUDA", "NVIDIA", "GPU", "OWN"))}


def files(layout: Layout) -> list[str]:
    """Return the names of the CDI files of claims."""
    return sorted(each.name for each in layout.cdi_specs.glob("gpu.scheduling-claim-*.json"))


def has_no_file(layout: Layout) -> None:
    """Wait until no claim has a file."""
    wait.until(lambda: not files(layout), what="the end of the claims' files", timeout_s=PATIENCE_S)


def test_each_container_has_the_cards_and_limits_of_its_request(cluster: Layout, claimant: Namespace) -> None:
    """A part of a card, and two whole ones; what the container says of them itself does not count."""
    claimant.create(
        dra.template("cards", dra.request("part", memory="10Gi", cores="30"), dra.request("whole", count=2))
    )
    running(claimant, "p", one="part", two="whole")
    uuids = [fleet.card(cluster.node_name, index) for index in range(dra.CARDS)]
    assert environment(claimant, "p", "one") == {
        "CUDA_VISIBLE_DEVICES": uuids[0],
        "CUDA_DEVICE_MEMORY_LIMIT": "10240m",
        "CUDA_DEVICE_MEMORY_LIMIT_0": "10240m",
        "CUDA_DEVICE_SM_LIMIT": "30",
        "NVIDIA_VISIBLE_DEVICES": "void",
        "OWN": "kept",
    }
    two = environment(claimant, "p", "two")
    assert two["CUDA_VISIBLE_DEVICES"].split(",") == uuids[1:3]
    assert {two[f"CUDA_DEVICE_MEMORY_LIMIT_{index}"] for index in range(2)} == {f"{dra.CARD_MIB}m"}
    assert devices(claimant, "p", "one") == {"nvidia0"}
    assert devices(claimant, "p", "two") == {"nvidia1", "nvidia2"}
    assert len(files(cluster)) == 1
    claimant.delete("pods", "p", grace_s=1)
    has_no_file(cluster)


def test_container_names_a_request_that_has_alternatives(cluster: Layout, claimant: Namespace) -> None:
    """It gets the card and the limits of the alternative that was chosen."""
    amounts = {"big": f"{2 * dra.CARD_MIB}Mi", "small": "5Gi"}
    either = [{"name": name, **dra.request(memory=memory)["exactly"]} for name, memory in amounts.items()]
    claimant.create(dra.template("cards", {"name": "gpu", "firstAvailable": either}))
    running(claimant, "p", main="gpu")
    assert environment(claimant, "p", "main")["CUDA_DEVICE_MEMORY_LIMIT_0"] == "5120m"
    assert devices(claimant, "p", "main") == {"nvidia0"}


def test_parts_of_one_card_are_of_two_pods(cluster: Layout, claimant: Namespace) -> None:
    """Each has its own limit, and a file of its own, until it ends."""
    claimant.create(dra.template("cards", dra.request("part", memory="30Gi")))
    for name in ("p", "q"):
        running(claimant, name, main="part")
        assert environment(claimant, name, "main")["CUDA_DEVICE_MEMORY_LIMIT_0"] == "30720m"
        assert devices(claimant, name, "main") == {"nvidia0"}
    assert len(files(cluster)) == 2
    claimant.delete("pods", "p", grace_s=1)
    wait.until(lambda: len(files(cluster)) == 1, what="one file", timeout_s=PATIENCE_S)
    assert devices(claimant, "q", "main") == {"nvidia0"}


def test_pods_end_while_no_agent_is_there_and_their_files_later(cluster: Layout, claimant: Namespace) -> None:
    """The kubelet withdraws the slice meanwhile, and asks the next agent until nothing is left of the claim."""
    api, name = client(cluster), f"gpu.scheduling-{cluster.node_name}"
    claimant.create(dra.template("cards", dra.request("part", memory="1Gi")))
    running(claimant, "p", main="part")
    Daemon(cluster, dra.AGENT).stop()
    claimant.delete("pods", "p", grace_s=1, wait=False)
    api.until(lambda slices: name not in slices, "resourceslices", what="no slice", timeout_s=_SLICE_GOES_S)
    assert len(files(cluster)) == 1
    assert claimant.list("resourceclaims")
    with registering(cluster):
        dra.start_agent_of_real_node(cluster)
    has_no_file(cluster)
    claimant.until(lambda claims: not claims, "resourceclaims", what="the end of the claim")
    api.until(lambda slices: name in slices, "resourceslices", what="slice")
    running(claimant, "q", main="part")


def test_kubelet_that_starts_again_finds_the_agent(cluster: Layout, claimant: Namespace) -> None:
    """Containers that ran keep their cards, and new ones get theirs."""
    claimant.create(dra.template("cards", dra.request("part", memory="1Gi")))
    before = running(claimant, "p", main="part")
    with registering(cluster):
        restart_kubelet(cluster)
    running(claimant, "q", main="part")
    after = claimant.pod("p")
    assert [each["containerID"] for each in after["status"]["containerStatuses"]] == [
        each["containerID"] for each in before["status"]["containerStatuses"]
    ]
    claimant.delete("pods", "p", "q", grace_s=1)
    has_no_file(cluster)


def test_no_container_starts_by_a_slice_that_is_gone(cluster: Layout, claimant: Namespace) -> None:
    """Back with the ledger the agent refuses each claim, and the pod's event says why."""
    api, node = client(cluster), cluster.node_name
    assert dra.claimed(claimant, "c", node, dra.request(memory="10Gi")) == ["gpu-0"]
    allocation = claimant.get("resourceclaims", "c")["status"]["allocation"]
    dra.remove(claimant)
    dra.want(api, node, None)
    dra.until(api, node, "ledger")

    claimant.create(dra.claim("late", dra.request(memory="10Gi")))
    late = dra.pod("late", node=node, resourceClaimName="late")
    late["spec"]["schedulerName"] = "nobody"
    claimant.create(late)
    reserved = {"resource": "pods", "name": "late", "uid": claimant.pod("late")["metadata"]["uid"]}
    status = {"allocation": allocation, "reservedFor": [reserved]}
    claimant.patch("resourceclaims", "late", {"status": status}, subresource="status")
    binding = {
        "apiVersion": "v1",
        "kind": "Binding",
        "metadata": {"name": "late"},
        "target": {"apiVersion": "v1", "kind": "Node", "name": node},
    }
    claimant.kubectl(
        "create", "--raw", f"/api/v1/namespaces/{claimant.name}/pods/late/binding", "-f", "-", stdin=json.dumps(binding)
    )

    def refusals(events: Mapping[str, Any]) -> bool:
        return any("does not give its cards to claims now" in each.get("message", "") for each in events.values())

    claimant.until(refusals, "events", what="refusal of the claim")
    assert claimant.pod("late")["status"]["phase"] == "Pending"
