"""Which container the kubelet asks about, and which must not start."""

import pytest

from agent.device_plugin.matching import (
    BoundPod,
    Container,
    admitted,
    allocated,
    check_admitted,
    check_starting,
)
from agent.refusal import Refusal
from allocation import names
from allocation.allocation import Allocation, CardShare
from allocation.delivery import Delivery
from allocation.wire import environment

A, B, C = (CardShare(f"GPU-{name}", index, 3000, 300) for index, name in enumerate("abc"))


def pod(
    name: str, *, delivery: Delivery = "device-plugin", node: str = "n1", **containers: tuple[CardShare, ...]
) -> BoundPod:
    """Return a pod that was bound to a node."""
    return BoundPod("team", name, environment.annotations(Allocation(node, containers), delivery))


def of(pod_name: str, name: str = "main") -> Container:
    """Return a container of the namespace."""
    return Container("team", pod_name, name)


TWO = allocated([pod("one", main=(B, A)), pod("two", main=(C,), side=(A,))], node="n1")


def test_containers_have_the_cards_of_their_allocation() -> None:
    """In the order of their pod; the cards by their UUIDs."""
    assert {of("one"): ("GPU-a", "GPU-b"), of("two"): ("GPU-c",), of("two", "side"): ("GPU-a",)} == TWO
    assert [*TWO] == [of("one"), of("two"), of("two", "side")]


@pytest.mark.parametrize(
    "other",
    [
        pod("p", main=(A,), delivery="cdi"),
        pod("p", main=(A,), delivery="env"),
        pod("p", main=(A,), delivery="nri"),
        pod("p", main=(A,), node="n2"),
        BoundPod(
            "team",
            "p",
            {
                names.ALLOCATION: '{"v":1,"node":"n1","containers":{"main":[]}}',
                names.environment_key("nvidia-visible-devices", "main"): environment.NO_DEVICES,
            },
        ),
        BoundPod("team", "p", {names.ALLOCATION: "{"}),
        BoundPod("team", "p", {}),
    ],
)
def test_pods_that_the_plugin_does_not_serve_are_left_out(other: BoundPod) -> None:
    """They were bound in another mode, to another node, or have no allocation that can be read."""
    assert allocated([other], node="n1") == {}


def test_the_container_without_devices_is_the_one_that_is_asked_about() -> None:
    """A pod that the kubelet does not list yet is not: it considers one after another."""
    assert admitted({of("one"): []}, TWO) == ("GPU-a", "GPU-b")
    assert admitted({of("one"): ["GPU-a::0", "GPU-b::0"], of("two"): [], of("two", "side"): []}, TWO) == ("GPU-c",)
    assert admitted({of("two"): ["GPU-c::0"], of("two", "side"): []}, TWO) == ("GPU-a",)


def test_pods_without_an_allocation_get_no_devices() -> None:
    """Another scheduler placed them: their container is not among those that wait."""
    with pytest.raises(Refusal, match="a pod was not placed by Tranche's scheduler"):
        admitted({of("foreign"): []}, TWO)
    with pytest.raises(Refusal, match="no container on this node waits"):
        admitted({of("one"): ["GPU-a::0", "GPU-b::0"], of("foreign"): []}, TWO)


def test_two_pods_that_may_be_meant_are_refused_unless_their_cards_are_equal() -> None:
    """The message names both."""
    with pytest.raises(Refusal, match="container main of pod team/one, container main of pod team/two have none"):
        admitted({of("one"): [], of("two"): [], of("two", "side"): []}, TWO)
    same = allocated([pod("one", main=(A,)), pod("two", main=(A,))], node="n1")
    assert admitted({of("one"): [], of("two"): []}, same) == ("GPU-a",)


def test_the_kubelets_choice_has_to_be_the_schedulers() -> None:
    """A kubelet need not follow a preference."""
    check_admitted(["GPU-b::4", "GPU-a::1"], {of("one"): []}, TWO)
    with pytest.raises(Refusal, match=r"chose devices of GPU-a, GPU-c, and the allocation has GPU-a, GPU-b"):
        check_admitted(["GPU-a::1", "GPU-c::0"], {of("one"): []}, TWO)


def test_a_container_starts_only_with_the_cards_of_its_own_allocation() -> None:
    """No other container has its devices, so the kubelet's list says whose they are."""
    held = {of("one"): ["GPU-a::0", "GPU-b::0"], of("two"): ["GPU-a::1"], of("foreign"): ["GPU-c::0"]}
    check_starting(["GPU-b::0", "GPU-a::0"], held, TWO)
    with pytest.raises(Refusal, match=r"container main of pod team/two has devices of GPU-a, and its .* has GPU-c"):
        check_starting(["GPU-a::1"], held, TWO)
    with pytest.raises(Refusal, match=r"pod team/foreign has devices of GPU-c, and its allocation has none"):
        check_starting(["GPU-c::0"], held, TWO)
    with pytest.raises(Refusal, match="lists no container with the devices GPU-a::0"):
        check_starting(["GPU-a::0"], held, TWO)
