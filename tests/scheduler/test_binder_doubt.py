"""After an answer that never came, no later refusal is taken for the end of the story."""

import time
from collections.abc import Iterator
from typing import Any

import msgspec
import pytest

from cluster.api import Api
from cluster.errors import ApiError, ClusterError, UnreachableError
from scheduler.binder import Binder, Outcome, allocation_annotations
from scheduler.cycle import Chosen, decide
from scheduler.objects import Pod
from tests.scheduler.builders import pod, state

TIMEOUT_S = 0.4
LOST = UnreachableError("the connection was cut")
FORBIDDEN = ApiError(request="POST binding", status=403, reason="Forbidden", message="roles not read yet")


class Server(Api):
    """An API server that answers Bindings in a given way, the last way for ever, and shows one pod."""

    def __init__(self, shown: Pod, *answers: ClusterError | None) -> None:
        self.shown = shown
        self._answers: Iterator[ClusterError | None] = iter(answers)
        self._last: ClusterError | None = None
        self.asked = 0

    async def request(self, method: str, _path: str, **_how: Any) -> bytes:  # type: ignore[override]
        """Answer a Binding, or show the pod."""
        if method == "GET":
            return msgspec.json.encode(self.shown)
        self.asked += 1
        self._last = next(self._answers, self._last)
        if self._last is not None:
            raise self._last
        return b"{}"


def decided(name: str) -> tuple[Pod, Chosen]:
    """Answer a pod and a decision for it."""
    asks = pod(name, memory=100)
    chosen = decide(state("n1"), asks)
    assert isinstance(chosen, Chosen)
    return asks, chosen


async def test_a_refusal_at_once_is_one() -> None:
    """Nothing is under way, so nothing can come of it."""
    asks, chosen = decided("a")
    server = Server(asks, FORBIDDEN)
    result = await Binder(server, token="1/x", timeout_seconds=TIMEOUT_S).bind(asks, chosen)  # noqa: S106
    assert (result.outcome, server.asked) == (Outcome.REFUSED, 1)


async def test_a_refusal_after_a_lost_answer_is_asked_again() -> None:
    """An API server that has just started refuses what it allows a moment later."""
    asks, chosen = decided("a")
    server = Server(asks, LOST, FORBIDDEN, None)
    result = await Binder(server, token="1/x", timeout_seconds=TIMEOUT_S).bind(asks, chosen)  # noqa: S106
    assert (result.outcome, server.asked) == (Outcome.BOUND, 3)


@pytest.mark.parametrize("is_taken", [True, False])
async def test_a_lasting_refusal_ends_when_nothing_can_be_under_way(is_taken: bool) -> None:  # noqa: FBT001
    """Then the pod itself tells whether the lost answer was a yes; before, the share stays reserved."""
    asks, chosen = decided("a")
    server = Server(asks, LOST, FORBIDDEN)
    if is_taken:
        server.shown = pod("a", memory=100, node="n1", annotations=allocation_annotations(chosen, unix_seconds=1))
    begin = time.monotonic()
    result = await Binder(server, token="1/x", timeout_seconds=TIMEOUT_S).bind(asks, chosen)  # noqa: S106
    assert result.outcome is (Outcome.BOUND if is_taken else Outcome.REFUSED)
    assert time.monotonic() - begin >= TIMEOUT_S
