"""Whatever a user, a kubelet and the scheduler do in whatever order, what a container may use is charged."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from allocation.adjustment import Adjustment, Amounts
from allocation.allocation import Allocation, CardShare
from allocation.names import ALLOCATION, RESIZED
from allocation.request import ContainerRequest, Kind, PodRequest
from allocation.wire import record, resize_record
from scheduler.resize import patches
from scheduler.resize.evaluation import Resize
from scheduler.resize.live_pod import LivePod
from scheduler.resize.progress import progressed

NAMES = ("main", "side", "once")
REQUEST = PodRequest(
    tuple(ContainerRequest(name, Kind.INIT if name == "once" else Kind.REGULAR, "", 1, memory_mib=1) for name in NAMES)
)
TOKEN = "1/a"  # noqa: S105 -- the token of a term is not a secret
UNCHANGED = Adjustment((), {}, Amounts(), Amounts())
Size = tuple[int, int, int]
"""MiB and millicards, and the most millicards that the container may use."""
SIZES = st.builds(
    lambda memory, cores, more: (memory, cores, cores + more),
    st.integers(1, 4),
    st.integers(0, 4),
    st.sampled_from((0, 0, 3)),
)


def allocation(sizes: dict[str, Size]) -> Allocation:
    """Return the allocation of containers that share a card."""
    return Allocation(
        "n1",
        {
            name: (CardShare("GPU-0", 0, memory, cores, cores_limit=most if most > cores else 0),)
            for name, (memory, cores, most) in sizes.items()
        },
    )


def sizes_of(made: Allocation) -> dict[str, Size]:
    """Return the size of each container."""
    return {
        name: (share.memory_mib, share.cores, share.at_limits().cores) for name, (share,) in made.containers.items()
    }


class PodOnANode(RuleBasedStateMachine):
    """A pod as the API server has it, as its kubelet has seen it, and the containers that run."""

    def __init__(self) -> None:
        super().__init__()
        self.generation, self.tolerations = 1, []
        self.annotations: dict[str, str] = {ALLOCATION: record.encode(allocation(dict.fromkeys(NAMES, (2, 2, 2))))}
        self.seen: tuple[int, dict[str, Size]] = (1, self.current())
        self.sizes: dict[str, Size] = self.current()
        self.serial = 0
        self.ids = dict.fromkeys(NAMES, "0")
        self.has_ended = False
        self.status: dict[str, Any] = {}
        self.reports: list[dict[str, Any]] = []

    def current(self) -> dict[str, Size]:
        """Return the size that a container gets that starts by the current annotations."""
        return sizes_of(record.decode(self.annotations[ALLOCATION]))

    def usable(self) -> Allocation:
        """Return what is charged."""
        now, resized = record.decode(self.annotations[ALLOCATION]), resize_record.resized_of(self.annotations)
        return now if resized is None else resize_record.usable(now, resized)

    def live(self) -> LivePod:
        """Return the pod as the scheduler reads it."""
        content = {
            "metadata": {"name": "p", "uid": "u", "annotations": self.annotations, "generation": self.generation},
            "spec": {"tolerations": self.tolerations, "initContainers": [{"name": "once"}]},
            "status": self.status,
        }
        return msgspec.convert(content, LivePod)

    def patch(self, body: dict[str, Any]) -> None:
        """Write what the scheduler writes."""
        self.annotations = {
            key: value
            for key, value in {**self.annotations, **body["metadata"]["annotations"]}.items()
            if value is not None
        }
        tolerations = body.get("spec", {}).get("tolerations", self.tolerations)
        self.generation += tolerations != self.tolerations
        self.tolerations = tolerations

    @rule(name=st.sampled_from(NAMES), size=SIZES)
    def resize(self, name: str, size: Size) -> None:
        """The scheduler writes another size of a container."""
        after = allocation({**self.current(), name: size})
        self.patch(patches.resize(self.live(), Resize(self.usable(), after, REQUEST, UNCHANGED), token=TOKEN))

    @rule()
    def progress(self) -> None:
        """The scheduler notes containers, or ends the old size."""
        resized = resize_record.resized_of(self.annotations)
        if resized is not None:
            after = progressed(resized, record.decode(self.annotations[ALLOCATION]), self.live())
            if after != resized:
                self.patch(patches.progress(after, token=TOKEN))

    @rule()
    def see(self) -> None:
        """The watch of the kubelet shows it the pod as it is now."""
        self.seen = (self.generation, self.current())

    @rule(name=st.sampled_from(NAMES))
    def start(self, name: str) -> None:
        """The kubelet starts a container by the pod that it has seen."""
        self.serial += 1
        self.ids[name], self.sizes[name] = str(self.serial), self.seen[1][name]
        self.has_ended = self.has_ended and name != "once"

    @rule()
    def end_the_init_container(self) -> None:
        """It uses nothing any more, until the kubelet starts another one."""
        self.has_ended, self.sizes["once"] = True, (0, 0, 0)

    @rule()
    def write_down(self) -> None:
        """The kubelet writes down the status, with the generation that it has seen."""
        state = {"terminated": {}} if self.has_ended else {"running": {}}
        self.reports.append(
            {
                "observedGeneration": self.seen[0],
                "containerStatuses": [{"name": name, "containerID": self.ids[name]} for name in ("main", "side")],
                "initContainerStatuses": [{"name": "once", "containerID": self.ids["once"], "state": state}],
            }
        )

    @precondition(lambda self: self.reports)
    @rule()
    def report(self) -> None:
        """The API server gets a status, however long after."""
        self.status = self.reports.pop(0)

    @invariant()
    def nothing_is_used_that_is_not_charged(self) -> None:
        """Of the containers that run, and of those that the kubelet would start by the pod that it has seen."""
        charged = sizes_of(self.usable())
        for used in (self.sizes, self.seen[1]):
            for name, size in used.items():
                assert size[0] <= charged[name][0], (name, used, charged)
                assert size[1] <= charged[name][1], (name, used, charged)
                assert size[2] <= charged[name][2], (name, used, charged)


def test_no_history_charges_less_than_may_be_used() -> None:
    """A restart of the scheduler at any point charges the same, because all of it is in the annotations."""
    from hypothesis.stateful import run_state_machine_as_test  # noqa: PLC0415 -- the only user

    run_state_machine_as_test(PodOnANode, settings=settings(max_examples=300, stateful_step_count=40, deadline=None))


def test_a_resize_ends() -> None:
    """Seen, noted, restarted, reported: then only the new size is charged. Without a restart it never is."""
    pod = PodOnANode()
    pod.resize("main", (1, 1, 1))
    pod.see()
    for expected in (True, True):
        pod.write_down()
        pod.report()
        pod.progress()
        assert (RESIZED in pod.annotations) is expected
    pod.start("main")
    pod.write_down()
    pod.report()
    pod.progress()
    assert RESIZED not in pod.annotations
    assert sizes_of(pod.usable())["main"] == (1, 1, 1)


@pytest.mark.parametrize("is_noted", [False, True])
def test_an_init_container_that_has_ended_delays_nothing(*, is_noted: bool) -> None:
    """It has no successor as long as the pod's sandbox lives, and one that comes has the new size."""
    pod = PodOnANode()
    pod.resize("once", (1, 1, 1))
    pod.see()
    for has_ended in (False, True) if is_noted else (True,):
        if has_ended:
            pod.end_the_init_container()
        pod.write_down()
        pod.report()
        pod.progress()
        assert (RESIZED in pod.annotations) is not has_ended
