"""After a lost response, a later refusal does not prove that the Binding failed."""

import time
from collections.abc import Iterator, Mapping
from typing import Any

import msgspec
import pytest

from allocation.steps import finish
from cluster.api import Api
from cluster.errors import ApiError, ClusterError, ConflictError, NotFoundError, UnreachableError
from scheduler.binding.binder import Binder, allocation_annotations
from scheduler.cycle.result import Scheduled
from scheduler.metrics.labels import Outcome
from scheduler.objects import Pod
from tests.scheduler.support.builders import pod, state
from tests.scheduler.support.fencing import fenced
from tests.scheduler.support.scheduling import schedule

TIMEOUT_S = 0.4
LOST = UnreachableError("the connection was cut")
FORBIDDEN = ApiError(request="POST binding", status=403, reason="Forbidden", message="roles not read yet")


def kind_of(status: int, message: str, kind: type[ApiError] = ApiError) -> ApiError:
    """Return an error of the API server."""
    return kind(request="POST binding", status=status, reason="", message=message)


class Server(Api):
    """An API server with given responses to Bindings, of which the last repeats, and with one pod."""

    def __init__(self, shown: Pod, *responses: ClusterError | None) -> None:
        self.shown = shown
        self.written: list[tuple[str, Any, bool]] = []
        self._responses: Iterator[ClusterError | None] = iter(responses)
        self._last: ClusterError | None = None
        self.asked = 0

    async def request(  # type: ignore[override]
        self, method: str, path: str, *, body: Any = None, params: Mapping[str, str] | None = None, **_how: Any
    ) -> bytes:
        """Return a Binding, or show the pod."""
        if method == "GET":
            assert path == "/api/v1/namespaces/default/pods/a"
            return msgspec.json.encode(self.shown)
        self.asked += 1
        self.written.append((path, body, "dryRun" in (params or {})))
        self._last = next(self._responses, self._last)
        if self._last is not None:
            raise self._last
        return b"{}"


def decided(name: str) -> tuple[Pod, Scheduled]:
    """Return a pod and a decision for it."""
    asks = pod(name, memory=100)
    chosen = finish(schedule(state("n1"), asks))
    assert isinstance(chosen, Scheduled)
    return asks, chosen


async def test_an_immediate_refusal_is_final() -> None:
    """No request is in progress that could still succeed."""
    asks, chosen = decided("a")
    server = Server(asks, FORBIDDEN)
    result = await Binder(fenced(server, timeout_seconds=TIMEOUT_S)).bind(asks, chosen)
    assert (result.outcome, server.asked) == (Outcome.REFUSED, 1)


async def test_a_refusal_after_a_lost_response_is_not_final() -> None:
    """An API server that has just started refuses requests that it allows a moment later."""
    asks, chosen = decided("a")
    server = Server(asks, LOST, FORBIDDEN, None)
    result = await Binder(fenced(server, timeout_seconds=TIMEOUT_S)).bind(asks, chosen)
    assert (result.outcome, server.asked) == (Outcome.BOUND, 3)


async def test_a_binding_is_sent_as_soon_as_the_credentials_can_be_read() -> None:
    """The token file is exchanged while it is read; the pod keeps its cards until then."""
    asks, chosen = decided("a")
    server = Server(asks, ClusterError("the credentials cannot be read"), None)
    result = await Binder(fenced(server, timeout_seconds=TIMEOUT_S)).bind(asks, chosen)
    assert (result.outcome, server.asked) == (Outcome.BOUND, 2)


@pytest.mark.parametrize("is_taken", [True, False])
async def test_a_lasting_refusal_ends_when_nothing_can_be_under_way(is_taken: bool) -> None:  # noqa: FBT001
    """Then the pod shows whether the lost request succeeded; until then the cards stay reserved."""
    asks, chosen = decided("a")
    server = Server(asks, LOST, FORBIDDEN)
    if is_taken:
        server.shown = pod("a", memory=100, node="n1", annotations=allocation_annotations(chosen, unix_seconds=1))
    begin = time.monotonic()
    result = await Binder(fenced(server, timeout_seconds=TIMEOUT_S)).bind(asks, chosen)
    assert result.outcome is (Outcome.BOUND if is_taken else Outcome.REFUSED)
    assert time.monotonic() - begin >= TIMEOUT_S


async def test_a_binding_names_the_pod_its_node_and_the_queue_that_pays() -> None:
    """The UID keeps it from binding another pod of the same name, and a later leader counts the same queue."""
    asks, chosen = decided("a")
    server = Server(asks)
    binder = Binder(fenced(server))
    await binder.bind(asks, msgspec.structs.replace(chosen, charged_to="team"), more={"example.com/more": "x"})
    assert await binder.rehearse(asks, chosen) == ""
    (path, binding, is_dry), (_, rehearsed, _) = server.written
    assert (path, is_dry) == ("/api/v1/namespaces/default/pods/a/binding", False)
    meta = binding["metadata"]
    assert (meta["name"], meta["namespace"], meta["uid"]) == ("a", "default", "uid-a")
    assert binding["target"] == {"apiVersion": "v1", "kind": "Node", "name": chosen.node}
    paid, more = meta["annotations"].pop("gpu.scheduling/charged-to"), meta["annotations"].pop("example.com/more")
    assert (paid, more) == ("team", "x")
    assert meta["annotations"].keys() == rehearsed["metadata"]["annotations"].keys()


@pytest.mark.parametrize(
    ("error", "expected"),
    [(None, ""), (FORBIDDEN, str(FORBIDDEN)), (kind_of(400, "webhook x does not support dry run"), "")],
)
async def test_a_dry_run_says_why_a_binding_would_be_refused(error: ClusterError | None, expected: str) -> None:
    """Unless a webhook of the cluster has no dry runs, which says nothing about the Binding."""
    asks, chosen = decided("a")
    server = Server(asks, error)
    assert await Binder(fenced(server)).rehearse(asks, chosen) == expected
    assert [is_dry for *_, is_dry in server.written] == [True]


@pytest.mark.parametrize(
    ("error", "expected"),
    [
        (kind_of(409, "it has a node", ConflictError), "conflict"),
        (kind_of(404, "no such pod", NotFoundError), "gone"),
        (LOST, "unknown"),
        (kind_of(403, "ValidatingAdmissionPolicy 'tranche-fence' denied it"), "fenced"),
        (FORBIDDEN, "refused"),
    ],
)
async def test_failed_attempts_are_counted_by_kind(error: ClusterError, expected: str) -> None:
    """As `bind_errors` of the metrics has them."""
    asks, chosen = decided("a")
    kinds: list[str] = []
    await Binder(fenced(Server(asks, error, None)), on_error=kinds.append).bind(asks, chosen)
    assert kinds == [expected]
