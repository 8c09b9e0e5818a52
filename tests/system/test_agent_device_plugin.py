"""The agent as the device plugin of a real kubelet, whose list of resources agrees with the allocations.

CDI is containerd's own; cards are devices that work as `/dev/null`.
"""

from __future__ import annotations

import asyncio
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any, cast

import pytest

from agent.device_plugin.devices import cards_of
from agent.device_plugin.matching import Container
from agent.device_plugin.node_view import LiveNodeView
from allocation.names import ALLOCATION
from allocation.wire import record
from cluster.api import Api
from lab import components, fleet, kubeconfig, kubectl, real_node, wait
from lab import namespace as node_namespace
from lab.processes import Daemon
from tests.support.patience import PATIENCE_S
from tests.system.conftest import Namespace, pod
from tests.system.support import nvidia_software
from tests.system.support.plugin_mode import GPU, advertised, advertises, drain, restart_kubelet
from tests.system.test_delivery import allocated, delivery, devices

if TYPE_CHECKING:
    from collections.abc import Iterator

    from lab.layout import Layout

pytestmark = [pytest.mark.apiserver, pytest.mark.kubelet]

ROOT = Path(__file__).parents[2]
DAEMON = "device-plugin-agent"
SLOTS = 10


def start_agent(layout: Layout) -> None:
    """Start an agent of the real node alone, inside it, and wait until the kubelet advertises its devices.

    Another one reports every node of the lab; both report the same of this one.
    """
    component = components.component(layout, "agent")
    namespace, account = component.account
    daemon = Daemon(layout, DAEMON)
    command = [
        *(sys.executable, "-m", *component.arguments),
        *("--kubeconfig", kubeconfig.service_account_kubeconfig(layout, namespace=namespace, name=account)),
        *("--node-name", layout.node_name, "--metrics-port", "0", "--delivery", "device-plugin"),
        *("--pod-resources-socket", pod_resources(layout)),
    ]
    daemon.start(node_namespace.inside(layout, command), env={"PYTHONPATH": str(ROOT)})
    count = str(fleet.CARDS_PER_NODE * SLOTS)
    wait.until(lambda: advertised(layout) == count, what="devices", timeout_s=PATIENCE_S, daemons=[daemon])


def pod_resources(layout: Layout) -> Path:
    """Return where the kubelet lists the devices of containers."""
    return layout.kubelet / "pod-resources" / "kubelet.sock"


@pytest.fixture(scope="module")
def node(node_support: None, tranche: Layout) -> Iterator[Layout]:
    """The lab whose real node has the agent as its device plugin; the kubelet forgets it afterwards."""
    cards = [fleet.card(tranche.node_name, index) for index in range(fleet.CARDS_PER_NODE)]
    nvidia_software.write_specs(tranche.cdi_specs, cards)
    kubectl.run(tranche, "apply", "-f", str(ROOT / "manifests" / "device-plugin" / "agent.yaml"))
    with delivery(tranche, {"mode": "device-plugin", "isRegistered": True}):
        start_agent(tranche)
        yield tranche
        if not real_node.is_ready(tranche):
            restart_kubelet(tranche)
        drain(tranche, DAEMON)


def registrations(layout: Layout) -> int:
    """Return how often the agent has registered with the kubelet.

    What the Node advertises does not change for a while after the end of the kubelet, whose successor rejects a pod
    that comes before the registration. An agent says in its report that it is not registered; here a fleet file says
    that it is.
    """
    return Daemon(layout, DAEMON).log.read_text(encoding="utf-8").count("registered with the kubelet")


def listed(layout: Layout) -> dict[Container, tuple[str, ...]]:
    """Return the cards of all containers by the kubelet's own list of resources."""
    view = LiveNodeView(cast("Api", None), node=layout.node_name, resource=GPU, socket=str(pod_resources(layout)))

    async def held() -> Any:
        return await view.held()

    return {container: cards_of(own) for container, own in asyncio.run(held()).items() if own}


def expected(namespace: Namespace, name: str) -> dict[Container, tuple[str, ...]]:
    """Return the cards of a pod's containers by its allocation."""
    allocation = record.decode(namespace.pod(name)["metadata"]["annotations"][ALLOCATION])
    return {
        Container(namespace.name, name, container): tuple(sorted(share.uuid for share in shares))
        for container, shares in allocation.containers.items()
    }


def agrees(namespace: Namespace, *names: str) -> None:
    """Check that the kubelet's list has the cards of the allocations of these pods, and so have their containers."""
    found = listed(namespace.layout)
    for name in names:
        cards = expected(namespace, name)
        assert {container: found[container] for container in cards} == cards
        assert devices(namespace, name) == allocated(namespace.pod(name))


def restartable(name: str, node: str) -> dict[str, Any]:
    """Return a pod whose container ends as soon as it has the file /end, and is started again."""
    made = pod(name, node=node, gpu=1, gpumem=3000)
    made["spec"]["containers"][0]["command"] = ["sh", "-c", "while [ ! -e /end ]; do sleep 0.1; done"]
    return made


def test_the_kubelets_list_agrees_with_the_allocations(node: Layout, namespace: Namespace) -> None:
    """Of pods that come at once, with one card, several, and different ones in each container."""
    two = pod("two", node=node.node_name, gpu=2, gpumem=3000)
    (main,) = two["spec"]["containers"]
    two["spec"]["containers"].append(
        {**main, "name": "other", "resources": {"limits": {GPU: 1, "nvidia.com/gpumem": 99}}}
    )
    singles = [pod(f"p{index}", node=node.node_name, gpu=1, gpumem=3000 + index) for index in range(5)]
    namespace.create(two, pod("all", node=node.node_name, gpu=fleet.CARDS_PER_NODE, gpumem=100), *singles)
    names = ("two", "all", *(each["metadata"]["name"] for each in singles))
    namespace.ready(*names)
    agrees(namespace, *names)


def test_a_pod_of_another_scheduler_gets_no_device(
    node: Layout, namespace: Namespace, plain_namespace: Namespace
) -> None:
    """The kubelet rejects it with the agent's reason, and admits the next pod."""
    foreign = pod("foreign", gpu=1)
    foreign["spec"]["nodeName"] = node.node_name
    plain_namespace.create(foreign)
    status = plain_namespace.until(
        lambda pods: pods["foreign"]["status"].get("phase") == "Failed" and pods["foreign"]["status"],
        what="a pod that the kubelet refuses",
    )
    assert status["reason"] == "UnexpectedAdmissionError"
    assert "a pod was not placed by Tranche's scheduler" in status["message"]
    plain_namespace.delete("pod", "foreign")
    namespace.create(pod("next", node=node.node_name, gpu=1, gpumem=3000))
    namespace.ready("next")
    agrees(namespace, "next")


def test_a_restarted_kubelet_is_served_again(node: Layout, namespace: Namespace) -> None:
    """It has another socket, and removed the agent's; pods that run keep their devices, and new ones get theirs."""
    namespace.create(pod("before", node=node.node_name, gpu=1, gpumem=3000))
    namespace.ready("before")
    held = listed(node)
    before = registrations(node)
    restart_kubelet(node)
    wait.until(lambda: registrations(node) > before, what="a new registration", timeout_s=PATIENCE_S)
    namespace.create(pod("after", node=node.node_name, gpu=2, gpumem=3000))
    namespace.ready("before", "after")
    agrees(namespace, "before", "after")
    assert held.items() <= listed(node).items()


def test_without_the_agent_containers_run_on_and_none_starts(node: Layout, namespace: Namespace) -> None:
    """Its node takes no pods; a container that has ended starts again once the agent is back, with its own card."""
    namespace.create(restartable("again", node.node_name), pod("stays", node=node.node_name, gpu=1, gpumem=3000))
    namespace.ready("again", "stays")
    Daemon(node, DAEMON).stop()
    advertises(node, "0")
    namespace.kubectl("exec", "again", "--", "touch", "/end")

    def refused(pods: Any) -> str | None:
        (status,) = pods["again"]["status"]["containerStatuses"]
        waiting = status["state"].get("waiting", {})
        return waiting.get("message") if waiting.get("reason") == "CreateContainerConfigError" else None

    assert namespace.until(refused, what="a container that does not start")
    namespace.create(pod("waits", node=node.node_name, gpu=1, gpumem=3000))
    assert f"Insufficient {GPU}: the node's device plugin advertises 0" in namespace.unplaced("waits")
    assert devices(namespace, "stays") == allocated(namespace.pod("stays"))
    start_agent(node)
    namespace.ready("again", "stays", "waits")
    agrees(namespace, "again", "stays", "waits")
