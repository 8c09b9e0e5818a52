"""Running pods get another size of their cards on a real API server, with every policy in force."""

from __future__ import annotations

import os
import signal
from typing import TYPE_CHECKING, Any

import pytest

from allocation.names import ALLOCATION, RESIZE, USE_UUIDS
from allocation.wire.resize_record import LONGEST_WISH
from lab import fleet
from lab.client import client
from lab.processes import Daemon
from tests.system.conftest import Namespace, pod
from tests.system.support import gpuquotas, resizing, tenants
from tests.system.support.resizing import Sized
from tests.system.support.restarts import restart

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from lab.layout import Layout

pytestmark = pytest.mark.apiserver
NODE = "gpu-sim-0"
CARD = 5
MEMORY = fleet.CARD_MEMORY_MIB


@pytest.fixture(scope="module", autouse=True)
def component(tranche: Layout, make_namespace: Callable[..., Namespace]) -> Iterator[None]:
    """The component resize."""
    with resizing.resizing(tranche, make_namespace()):
        yield


def on_card(name: str, memory: int, cores: int = 10) -> dict[str, Any]:
    """Return a pod that gets a slice of the card of these tests."""
    made = pod(name, node=NODE, gpu=1, gpumem=memory, gpucores=cores)
    made["metadata"]["annotations"] = {USE_UUIDS: fleet.card(NODE, CARD)}
    return made


def running(namespace: Namespace, name: str, memory: int) -> Sized:
    """Create a pod, and return it once it has its card and its container runs."""
    namespace.create(on_card(name, memory))
    namespace.until(lambda pods: pods[name]["spec"].get("nodeName"), what=f"node of {name}")
    sized = Sized(namespace, name)
    sized.report("first")
    return sized


def test_a_user_resizes_a_pod_by_the_command(namespace: Namespace) -> None:
    """With the role `edit` in the namespace: the pod grows, and the output says when that takes effect."""
    running(namespace, "trainer", 1000)
    user = tenants.account(namespace, "user", role="edit")
    done = tenants.gpu(user, "resize", "trainer", "--memory", "6000", "--cores", "40", "--no-headers")
    assert done.returncode == 0, done.stderr
    assert done.stdout.split() == [
        f"{namespace.name}/trainer",
        "main",
        "6000",
        "MiB",
        "40",
        "%",
        "at",
        "its",
        "next",
        "start",
    ]
    sized = Sized(namespace, "trainer")
    shown = sized.shown()["metadata"]["annotations"]
    assert shown["cuda-device-memory-limit-0.gpu.scheduling/main"] == "6000m"
    assert shown["cuda-device-sm-limit.gpu.scheduling/main"] == "40"
    sized.until_event("Resized", "1000 MiB and 10 % become 6000 MiB and 40 %")


def test_a_dry_run_says_what_is_left_and_changes_nothing(namespace: Namespace) -> None:
    """Whether it fits or not; nothing is written."""
    sized = running(namespace, "trainer", 1000)
    user = tenants.account(namespace, "user", role="edit")
    before = sized.shown()["metadata"]
    fits = tenants.gpu(user, "resize", "trainer", "--memory", "6000", "--dry-run", "--no-headers")
    assert fits.returncode == 0, fits.stderr
    assert fits.stdout.split() == [fleet.card(NODE, CARD), str(MEMORY - 6000), "MiB", "90", "%"]
    too_much = tenants.gpu(user, "resize", "trainer", "--memory", str(MEMORY + 1), "--dry-run")
    assert too_much.returncode == 1
    assert "ScalingQuotaExceeded" in too_much.stderr
    assert f"{MEMORY - 1000} MiB" in too_much.stdout
    assert sized.shown()["metadata"]["annotations"] == before["annotations"]
    viewer = tenants.account(namespace, "viewer", role="view")
    assert "patch" in tenants.gpu(viewer, "resize", "trainer", "--memory", "2000").stderr
    assert sized.share().memory_mib == 1000


def test_what_a_pod_gives_back_is_free_after_the_restart_of_its_container(namespace: Namespace) -> None:
    """Only when its kubelet has seen the new size, and another container has started since."""
    sized = running(namespace, "large", MEMORY - 1000)
    old = sized.shown()["metadata"]["generation"]
    sized.wish('{"main":{"gpumem":1000}}')
    sized.until_has(1000)
    namespace.create(on_card("next", MEMORY - 5000))
    assert "CardInsufficientMemory" in namespace.unplaced("next")
    sized.report("second", generation=old)
    sized.report("second")
    sized.until_noted("second")
    assert not namespace.pod("next")["spec"].get("nodeName")
    sized.report("third")
    sized.until_over()
    namespace.until(lambda pods: pods["next"]["spec"].get("nodeName"), what="a node for the next pod")


def test_a_size_that_does_not_fit_stays_a_wish(namespace: Namespace) -> None:
    """Beside another pod, and within a quota: the event says what is left, and the pod stays as it is."""
    running(namespace, "other", MEMORY - 10_000)
    sized = running(namespace, "trainer", 1000)
    sized.wish('{"main":{"gpumem":10001}}')
    sized.until_event("ScalingQuotaExceeded", "9000 MiB")
    gpuquotas.set_quota(namespace, "small", total={"limits": {"nvidia.com/gpumem": MEMORY - 10_000 + 3000}})
    sized.wish('{"main":{"gpumem":3001}}')
    sized.until_event("ScalingQuotaExceeded", "GpuQuota small limits nvidia.com/gpumem")
    assert sized.share().memory_mib == 1000
    sized.wish('{"main":{"gpumem":3000}}')
    sized.until_has(3000)
    gpuquotas.delete_quota(namespace, "small")


def test_a_leader_that_dies_at_any_moment_loses_nothing(tranche: Layout, namespace: Namespace) -> None:
    """The next leader carries out the wish, or finds it carried out, and charges the larger size in both cases."""
    sized = running(namespace, "trainer", MEMORY - 2000)
    for number, memory in enumerate((2000, MEMORY - 3000, 1000)):
        daemon = Daemon(tranche, "scheduler")
        sized.wish(f'{{"main":{{"gpumem":{memory}}}}}')
        if number:
            sized.until_has(memory)
        os.kill(daemon.pid or 0, signal.SIGKILL)
        restart(tranche, "scheduler", resizing.FLAG)
        sized.until_has(memory)
    name = "next"
    namespace.create(on_card(name, 2001))
    assert "CardInsufficientMemory" in namespace.unplaced(name)
    namespace.delete("pods", name, grace_s=1)
    namespace.create(on_card("fits", 2000))
    namespace.until(lambda pods: pods["fits"]["spec"].get("nodeName"), what="a node for what is free")


def test_a_flood_of_wishes_delays_no_other_namespace(
    namespace: Namespace, make_namespace: Callable[..., Namespace]
) -> None:
    """The pod of another namespace has its size while most pods of the first one still wait for theirs."""
    number, other = 30, make_namespace()
    trainer = running(other, "trainer", 1000)
    namespace.create(*(pod(f"p-{each}", node="gpu-sim-1", gpu=1, gpumem=100) for each in range(number)))
    namespace.placed(number)
    for each in range(number):
        Sized(namespace, f"p-{each}").wish('{"main":{"gpumem":101}}')
    trainer.wish('{"main":{"gpumem":2000}}')
    trainer.until_has(2000)
    resized = sum(Sized(namespace, f"p-{each}").share().memory_mib == 101 for each in range(number))
    assert resized < number
    Sized(namespace, "p-0").wish('{"main":' + " " * 100_000 + '{"gpumem":7}}')
    Sized(namespace, "p-0").until_event("ResizeRefused", f"at most {LONGEST_WISH} characters")
    other.empty()


def test_pods_of_claims_and_malformed_wishes_are_refused(namespace: Namespace) -> None:
    """The event names the reason, and nothing is written."""
    sized = running(namespace, "trainer", 1000)
    before = sized.shown()["metadata"]["annotations"][ALLOCATION]
    for text, words in (('{"main":{"gpumem":"1Gi"}}', "of the form"), ('{"side":{"gpumem":1}}', "container side")):
        sized.wish(text)
        sized.until_event("ResizeRefused", words)
    assert sized.shown()["metadata"]["annotations"][ALLOCATION] == before
    sized.wish(None)
    assert RESIZE not in sized.shown()["metadata"]["annotations"]
    assert client(namespace.layout).get("pods", "trainer", namespace=namespace.name)["spec"]["nodeName"] == NODE
