"""`kubectl gpu top --usage`: reservations joined with what the scheduler says of their use."""

from typing import Any

import msgspec
import pytest

from allocation.allocation import Allocation, CardShare
from allocation.names import ALLOCATION
from allocation.settings import AllocationSettings
from allocation.wire.record import encode
from cli.kube.objects import Pod
from cli.top.measured import UsageOfShares, join
from scheduler.api.usage_types import ContainerUse, PodUse, UsageView

MIB = 2**20
MAIN, SIDE = "ab" * 32, "cd" * 32


def pod(**ids: str) -> Pod:
    """Return a pod whose containers have a share each, with the IDs of those that have started."""
    shares = {name: (CardShare("GPU-a", 0, 3000, 300),) for name in ("main", "side")}
    limits = {"nvidia.com/gpu": "1", "nvidia.com/gpumem": "3000", "nvidia.com/gpucores": "30"}
    body: dict[str, Any] = {
        "metadata": {
            "name": "p",
            "namespace": "team",
            "uid": "u",
            "annotations": {ALLOCATION: encode(Allocation("n1", shares))},
        },
        "spec": {
            "nodeName": "n1",
            "containers": [{"name": name, "resources": {"limits": limits}} for name in ("main", "side")],
        },
        "status": {
            "phase": "Running",
            "containerStatuses": [{"name": name, "containerID": f"containerd://{ids[name]}"} for name in ids],
        },
    }
    return msgspec.convert(body, Pod)


def used(*containers: ContainerUse, problem: str = "", use: Any = "active", inactive: float | None = 5.0) -> UsageView:
    """Return what the scheduler says of the pod."""
    return UsageView((PodUse("team", "p", "u", "n1", "GPU-a", use, inactive, containers, problem),))


def rows(made: Pod, view: UsageView) -> dict[str, tuple[str, ...]]:
    """Return memory, utilization, use and inactivity as the table shows them, by container."""
    table = UsageOfShares(tuple(join([made], view, AllocationSettings()))).table()
    return {row[2]: tuple(row[5:]) for row in table.rows}


def test_each_container_has_its_own_use() -> None:
    """A container without processes on the card uses nothing of it."""
    view = used(ContainerUse(MAIN, 2000 * MIB + 1, 40))
    assert rows(pod(main=MAIN, side=SIDE), view) == {
        "main": ("2001/3000", "40/30", "active", "5s"),
        "side": ("0/3000", "0/30", "active", "5s"),
    }


@pytest.mark.parametrize(
    ("view", "problem"),
    [
        (used(problem="no PID namespace", use="unknown", inactive=None), "no PID namespace"),
        (UsageView(()), "the scheduler does not know the share yet"),
    ],
)
def test_unknown_is_shown_as_unknown(view: UsageView, problem: str) -> None:
    """In the table as a word, in JSON as null, with the reason."""
    made = pod(main=MAIN, side=SIDE)
    expected = ("unknown/3000", "unknown/30", "unknown", "unknown")
    assert rows(made, view) == {"main": expected, "side": expected}
    share = next(join([made], view, AllocationSettings()))
    assert share.problem == problem
    content = msgspec.to_builtins(share)
    assert (content["memoryUsedMiB"], content["utilization"], content["inactiveSeconds"]) == (None, None, None)


def test_values_that_the_driver_does_not_state_are_unknown_alone() -> None:
    """Utilization on a MIG instance, for example."""
    view = used(ContainerUse(MAIN, 7 * MIB, None), use="unknown", inactive=None)
    assert rows(pod(main=MAIN, side=SIDE), view)["main"] == ("7/3000", "unknown/30", "unknown", "unknown")


def test_container_that_was_just_restarted_is_unknown() -> None:
    """The pod's status has its old ID: the processes that the agent sees may be of any of its containers."""
    view = used(ContainerUse("ef" * 32, 7 * MIB, 1))
    assert rows(pod(main=MAIN), view)["side"][0] == "unknown/3000"


@pytest.mark.parametrize(
    ("seconds", "text"), [(0.0, "0s"), (59.0, "59s"), (60.0, "1m"), (3599.0, "59m"), (7300.0, "2h")]
)
def test_inactivity_is_shown_as_kubectl_shows_ages(seconds: float, text: str) -> None:
    """In one unit."""
    assert rows(pod(main=MAIN, side=SIDE), used(inactive=seconds))["main"][3] == text


def test_pods_without_shares_have_no_row() -> None:
    """Nor have pods whose allocation cannot be read, which `top` names."""
    bare = msgspec.convert({"metadata": {"name": "p"}, "spec": {"nodeName": "n1"}}, Pod)
    broken = pod(main=MAIN)
    broken.metadata.annotations[ALLOCATION] = "{"
    assert list(join([bare, broken], UsageView(()), AllocationSettings())) == []
