"""Another size of its cards for a pod on a real kubelet: what a process in the container sees, and what is charged."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

from allocation.names import RESIZED, USE_UUIDS
from lab import fleet, kubeconfig, kubelet, wait
from lab.layout import Port
from tests.support.patience import PATIENCE_S
from tests.system.conftest import Namespace, pod
from tests.system.support import relay, resizing
from tests.system.support.resizing import Sized

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

    from lab.layout import Layout
    from tests.system.support.relay import Relay

pytestmark = [pytest.mark.apiserver, pytest.mark.kubelet]
CARD = 2
MEMORY = fleet.CARD_MEMORY_MIB
PROGRAM = """
echo "$CUDA_DEVICE_MEMORY_LIMIT_0 $CUDA_DEVICE_SM_LIMIT" >> /shared/starts
while [ ! -e /shared/end ]; do sleep 0.1; done
rm /shared/end
"""


@pytest.fixture(scope="module")
def node(node_support: None, tranche: Layout, make_namespace: Callable[..., Namespace]) -> Iterator[Layout]:
    """The lab with a real node and the component resize."""
    with resizing.resizing(tranche, make_namespace()):
        yield tranche


def on_card(layout: Layout, name: str, memory: int) -> dict[str, Any]:
    """Return a pod of the real node whose container writes its limits, and ends when a file exists."""
    made = pod(name, node=layout.node_name, gpu=1, gpumem=memory, gpucores=10)
    made["metadata"]["annotations"] = {USE_UUIDS: fleet.card(layout.node_name, CARD)}
    made["spec"]["volumes"] = [{"name": "shared", "emptyDir": {}}]
    (container,) = made["spec"]["containers"]
    container["volumeMounts"] = [{"name": "shared", "mountPath": "/shared"}]
    container["command"] = ["sh", "-c", PROGRAM]
    return made


class Program:
    """What the containers of a pod write, and how they end: by files on the node, also while the kubelet is cut off."""

    def __init__(self, layout: Layout, namespace: Namespace, name: str) -> None:
        uid = namespace.pod(name)["metadata"]["uid"]
        self._folder = layout.kubelet / "pods" / uid / "volumes" / "kubernetes.io~empty-dir" / "shared"

    def starts(self) -> list[str]:
        """Return the limits of memory and cores that each container saw, in the order of their starts."""
        return (self._folder / "starts").read_text(encoding="utf-8").splitlines()

    def restart(self) -> str:
        """End the container, wait for the next one, and return the limits that it sees."""
        before = len(self.starts())
        (self._folder / "end").touch()
        wait.until(lambda: len(self.starts()) > before, what="a restarted container", timeout_s=2 * PATIENCE_S)
        return self.starts()[-1]


def is_free(namespace: Namespace, layout: Layout, memory: int) -> bool:
    """Whether a pod gets this much memory of the card."""
    namespace.create(on_card(layout, "next", memory))
    try:
        placed = namespace.until(
            lambda pods: (
                pods["next"]["spec"].get("nodeName")
                or any(each.get("reason") == "Unschedulable" for each in pods["next"]["status"].get("conditions", ()))
            ),
            what="a decision about the next pod",
        )
    finally:
        namespace.delete("pods", "next", grace_s=1)
    return placed is not True


def test_a_restarted_container_has_the_new_size(node: Layout, namespace: Namespace) -> None:
    """The kubelet reports the generation of the change; a process sees the old limits until the container is another.

    The pod, its node and its card stay. What it gave back is free only after the restart.
    """
    namespace.create(on_card(node, "trainer", MEMORY - 1000))
    namespace.ready("trainer")
    before = namespace.pod("trainer")
    sized = Sized(namespace, "trainer")
    sized.wish('{"main":{"gpumem":2000,"gpucores":40}}')
    sized.until_has(2000)
    namespace.until(
        lambda pods: "containers" in pods["trainer"]["metadata"]["annotations"].get(RESIZED, ""),
        what="the kubelet that has seen the new size",
    )
    program = Program(node, namespace, "trainer")
    assert program.starts() == [f"{MEMORY - 1000}m 10"]
    assert not is_free(namespace, node, 1001)
    assert program.restart() == "2000m 40"
    sized.until_over()
    after = namespace.pod("trainer")
    assert after["metadata"]["uid"] == before["metadata"]["uid"]
    assert after["status"]["observedGeneration"] == after["metadata"]["generation"] > before["metadata"]["generation"]
    assert is_free(namespace, node, MEMORY - 2000)


@pytest.fixture
def link(node: Layout, monkeypatch: pytest.MonkeyPatch) -> Iterator[Relay]:
    """The connection of the kubelet to the API server, which a test can cut."""
    written = kubeconfig.with_certificate
    with relay.relaying(node.port(Port.KUBE_APISERVER)) as made:

        def through(layout: Layout, path: Path, **how: Any) -> Path:
            file = written(layout, path, **how)
            text = file.read_text(encoding="utf-8")
            file.write_text(text.replace(layout.server, f"https://127.0.0.1:{made.port}"), encoding="utf-8")
            return file

        monkeypatch.setattr(kubeconfig, "with_certificate", through)
        kubelet.stop(node)
        kubelet.start(node)
        yield made
        made.mend()
        monkeypatch.undo()
        kubelet.stop(node)
        kubelet.start(node)


def test_a_kubelet_that_is_cut_off_frees_nothing(node: Layout, namespace: Namespace, link: Relay) -> None:
    """It restarts the container with the old size, and reports that much later: the larger size is still charged."""
    namespace.create(on_card(node, "trainer", MEMORY - 1000))
    namespace.ready("trainer")
    sized = Sized(namespace, "trainer")
    program, container = Program(node, namespace, "trainer"), container_id(namespace)
    link.cut()
    sized.wish('{"main":{"gpumem":2000}}')
    sized.until_has(2000)
    assert program.restart() == f"{MEMORY - 1000}m 10"
    assert not is_free(namespace, node, 1001)
    link.mend()
    namespace.until(
        lambda pods: "containers" in pods["trainer"]["metadata"]["annotations"].get(RESIZED, ""),
        what="the kubelet that has seen the new size",
        timeout_s=2 * PATIENCE_S,
    )
    assert container_id(namespace) != container
    assert not is_free(namespace, node, 1001)
    assert program.restart() == "2000m 10"
    sized.until_over()
    assert is_free(namespace, node, MEMORY - 2000)


def container_id(namespace: Namespace) -> str:
    """Return the ID of the container, as the kubelet has reported it last."""
    (status,) = namespace.pod("trainer")["status"]["containerStatuses"]
    return str(status["containerID"])
