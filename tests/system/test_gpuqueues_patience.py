"""Patience on a real API server: an endless stream of slices cannot keep a pod with a whole card waiting for ever."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Any

import pytest

from allocation.names import QUEUE
from lab import wait
from tests.support.patience import PATIENCE_S
from tests.system.conftest import Namespace, pod
from tests.system.support import gpubindings, gpuqueues
from tests.system.support.gpuqueues import labels, set_queue

if TYPE_CHECKING:
    from collections.abc import Iterator

    from lab.layout import Layout

pytestmark = pytest.mark.apiserver

NODE = gpubindings.NODE_A
SLICES = 16
"""Two on each of the eight cards, so that no card is ever free while another slice waits."""
BACKLOG = 4
QUEUE_PATIENCE_S = 5
LOOK_S = 5.0
"""So often the scheduler looks for pods that have waited too long."""
SLACK_S = 10.0


class Stream:
    """Slices that end one by one, the oldest first, and are replaced by new ones."""

    def __init__(self, namespace: Namespace) -> None:
        self.namespace = namespace
        self.created = self.ended = 0
        self.create(SLICES + BACKLOG)
        self._wait_for_placed(SLICES)

    def create(self, count: int) -> None:
        """Create slices that need nearly half a card."""
        names = [f"slice-{number:03}" for number in range(self.created, self.created + count)]
        self.namespace.create(*(pod(name, node=NODE, labels=labels("small"), gpu=1, gpumem=40_000) for name in names))
        self.created += count

    def turn(self) -> None:
        """End the oldest slice, and have a new one wait."""
        self.namespace.delete("pod", f"slice-{self.ended:03}")
        self.ended += 1
        self.create(1)
        self._wait_for_placed(SLICES)

    def _wait_for_placed(self, count: int) -> None:
        """Wait until the room is taken; what is held for the large pod is not."""
        wait.until(
            lambda: len(self._placed()) >= count or is_held(self.namespace),
            what=f"{count} slices",
            timeout_s=PATIENCE_S,
        )

    def _placed(self) -> list[dict[str, Any]]:
        return [each for each in self.namespace.pods(f"{QUEUE}=small") if each["spec"].get("nodeName")]


def is_held(namespace: Namespace) -> bool:
    """Whether an event says that cards are held for the large pod."""
    fields = "involvedObject.name=large,reason=CardsHeld"
    return bool(namespace.api.list("events", namespace=namespace.name, fields=fields))


def is_placed(namespace: Namespace) -> bool:
    """Whether the large pod has a node."""
    return bool(namespace.pod("large")["spec"].get("nodeName"))


@pytest.fixture(scope="module")
def node(tranche: Layout) -> Iterator[str]:
    """A node of eight cards for these tests alone."""
    with gpubindings.nodes(tranche):
        yield NODE


@pytest.fixture
def stream(node: str, tranche: Layout, namespace: Namespace, request: pytest.FixtureRequest) -> Iterator[Stream]:
    """A node full of slices, behind which a pod with a whole card waits; the parameter is the patience of its queue."""
    set_queue(tranche, "small")
    set_queue(tranche, "large", patienceSeconds=request.param)
    with gpuqueues.deleted(tranche, namespace):
        made = Stream(namespace)
        namespace.create(pod("large", node=NODE, labels=labels("large"), gpu=1))
        namespace.unplaced("large")
        yield made


@pytest.mark.parametrize("stream", [QUEUE_PATIENCE_S], indirect=True)
def test_whole_card_is_placed_within_patience_and_the_longest_slice(stream: Stream) -> None:
    """Cards are held after the patience; every slice of that moment has ended after 16 turns, and so has the wait."""
    namespace = stream.namespace
    began = time.monotonic()
    while not is_held(namespace):
        assert not is_placed(namespace), "no slice that ends leaves a whole card"
        assert time.monotonic() - began < QUEUE_PATIENCE_S + LOOK_S + SLACK_S
        stream.turn()
    held_at = stream.ended
    while not is_placed(namespace):
        assert stream.ended - held_at < SLICES, "the longest slice has ended"
        stream.turn()
        if stream.ended - held_at == SLICES:
            namespace.placed(1, f"{QUEUE}=large")
    stream.turn()  # the others go on


@pytest.mark.parametrize("stream", [0], indirect=True)
def test_without_patience_slices_go_ahead(stream: Stream) -> None:
    """In two generations of slices none leaves a whole card, which shows that holds are what helps."""
    for _ in range(2 * SLICES):
        stream.turn()
    assert not is_placed(stream.namespace)
    assert not is_held(stream.namespace)
