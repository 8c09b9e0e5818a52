"""What an eviction does when responses are lost, late, or errors of the server; on a stand-in that produces these."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from types import MappingProxyType
from typing import Any

import msgspec
import pytest

from allocation.fairness.queue_spec import QueueKey
from cluster.api import Api
from cluster.backoff import Backoff
from cluster.errors import ApiError, ClusterError, UnreachableError, from_answer
from cluster.events import Recorder
from scheduler.metrics.labels import EvictionOutcome
from scheduler.preemption import evictor as evictor_module
from scheduler.preemption.disruption_budgets import Budget
from scheduler.preemption.eligibility import EligiblePod
from scheduler.preemption.evictor import Evictor, Nomination
from tests.scheduler.support.builders import pod
from tests.scheduler.support.fencing import fenced
from tests.scheduler.support.recording import events

LOST = UnreachableError("the connection was cut")
PREEMPTOR = pod("important")
A, B, C = (EligiblePod(pod(name, node="n1"), QueueKey(namespace="default")) for name in "abc")
SUCCESS = b'{"kind": "Status", "status": "Success", "code": 201}'


def error(status: int, message: str = "") -> ApiError:
    """Return the error of a response."""
    body = msgspec.json.encode({"kind": "Status", "message": message})
    return from_answer(request="POST eviction", status=status, body=body)


class Server(Api):
    """An API server with given responses to Evictions, of which the last repeats; it accepts every patch.

    Attributes:
        writes: the last part of the path, and the name of the pod, of each write other than dry runs.
        rehearsed: the pods of the dry runs of Evictions.
        refusals: the responses to those that are refused, by pod.
    """

    def __init__(self, *responses: ClusterError | bytes) -> None:
        self._responses: Iterator[ClusterError | bytes] = iter(responses)
        self._last: ClusterError | bytes = SUCCESS
        self.writes: list[tuple[str, str]] = []
        self.rehearsed: list[str] = []
        self.refusals: dict[str, ClusterError] = {}

    async def request(  # type: ignore[override]
        self, _method: str, path: str, *, params: Mapping[str, str] = MappingProxyType({}), **_how: Any
    ) -> bytes:
        """Accept a patch, or return the next response to an Eviction."""
        *_, name, subresource = path.split("/")
        if "dryRun" in params:
            assert not self.evictions
            self.rehearsed.append(name)
            if name in self.refusals:
                raise self.refusals[name]
            return SUCCESS
        self.writes.append((subresource, name))
        if subresource != "eviction":
            return b"{}"
        self._last = next(self._responses, self._last)
        if isinstance(self._last, ClusterError):
            raise self._last
        return self._last

    @property
    def evictions(self) -> list[str]:
        """The pods of the Evictions, in their order."""
        return [name for subresource, name in self.writes if subresource == "eviction"]


@pytest.fixture(autouse=True)
def _short_pauses(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(evictor_module, "write_backoff", lambda: Backoff(first=0.001, longest=0.01))


def evictor(server: Server, recorder: Recorder | None = None, *, trusted: Iterator[bool] | None = None) -> Evictor:
    """Return an evictor that is trusted, or as long as `trusted` says so."""
    recorder = recorder or Recorder(server, component="test", instance="test")
    is_trusted = (lambda: True) if trusted is None else trusted.__next__
    return Evictor(fenced(server, is_trusted=is_trusted), recorder=recorder)


@pytest.mark.parametrize("unknown", [LOST, error(504, "Timeout")])
async def test_an_eviction_without_response_is_sent_again(unknown: ClusterError) -> None:
    """It has the UID of the pod, so it does no harm if the first one was applied."""
    server = Server(unknown, unknown, SUCCESS)
    outcome, evicted = await evictor(server).evict([Nomination(PREEMPTOR, "n1", (A, B))])
    assert (outcome, evicted) == (EvictionOutcome.EVICTED, [A, B])
    assert server.evictions == ["a", "a", "a", "b"]


async def test_a_pod_that_is_gone_after_a_lost_response_is_no_obstacle() -> None:
    """It may have been gone before, so it does not count as evicted."""
    server = Server(LOST, error(404), SUCCESS)
    outcome, evicted = await evictor(server).evict([Nomination(PREEMPTOR, "n1", (A, B))])
    assert (outcome, evicted) == (EvictionOutcome.EVICTED, [B])


async def test_a_server_that_never_answers_is_given_up() -> None:
    """The others live; whether the first one is evicted, its informer shows."""
    server = Server(LOST)
    outcome, evicted = await evictor(server).evict([Nomination(PREEMPTOR, "n1", (A, B))])
    assert (outcome, evicted) == (EvictionOutcome.UNKNOWN, [])
    assert server.evictions == ["a"] * 5


async def test_evictions_end_when_the_preemptor_does_not_need_the_node_any_more() -> None:
    """It was bound to another one after the first Eviction; the second victim lives."""
    server = Server(SUCCESS)
    outcome, evicted = await evictor(server).evict(
        [Nomination(PREEMPTOR, "n1", (A, B))], is_needed=lambda: not server.evictions
    )
    assert (outcome, evicted) == (EvictionOutcome.GONE, [A])
    assert server.evictions == ["a"]


async def test_an_eviction_without_response_is_not_sent_again_for_a_preemptor_that_does_not_need_it() -> None:
    """It was bound while the evictor paused; if the first Eviction did not arrive, the victim lives."""
    server = Server(LOST, SUCCESS)
    outcome, evicted = await evictor(server).evict(
        [Nomination(PREEMPTOR, "n1", (A, B))], is_needed=lambda: not server.evictions
    )
    assert (outcome, evicted) == (EvictionOutcome.GONE, [])
    assert server.evictions == ["a"]


async def test_a_refusal_after_a_lost_response_proves_nothing() -> None:
    """The first Eviction may have been applied, and the second was refused by a server that has just started."""
    server = Server(LOST, error(403, "roles not read yet"))
    outcome, _ = await evictor(server).evict([Nomination(PREEMPTOR, "n1", (A, B))])
    assert outcome is EvictionOutcome.UNKNOWN
    assert server.evictions == ["a", "a"]


@pytest.mark.parametrize(
    ("response", "expected"),
    [
        (error(500, "etcdserver: request timed out"), EvictionOutcome.UNKNOWN),
        (error(503), EvictionOutcome.UNKNOWN),
        (error(429), EvictionOutcome.REFUSED),
        (error(403), EvictionOutcome.REFUSED),
        (error(422), EvictionOutcome.REFUSED),
    ],
)
async def test_a_refusal_in_the_middle_ends_it(
    response: ApiError, expected: EvictionOutcome, caplog: pytest.LogCaptureFixture
) -> None:
    """Nothing is sent again, and the remaining victims live."""
    server = Server(SUCCESS, response)
    outcome, evicted = await evictor(server).evict([Nomination(PREEMPTOR, "n1", (A, B, C))])
    assert (outcome, evicted) == (expected, [A])
    assert caplog.messages[-1].startswith(f"pod {PREEMPTOR}: 1 of 3 victims on n1: {expected.value}: ")
    assert server.evictions == ["a", "b"]


async def test_a_write_by_somebody_else_that_came_first_is_not_a_refusal() -> None:
    """The API server answers so when the pod or its budget changes meanwhile; nothing was evicted."""
    server = Server(error(409, "the object has been modified"), SUCCESS)
    assert await evictor(server).evict([Nomination(PREEMPTOR, "n1", (A,))]) == (EvictionOutcome.EVICTED, [A])


async def test_guarded_victims_are_evicted_first() -> None:
    """The order is kept otherwise; the nomination comes before all of them, and each condition after its Eviction."""
    server = Server(SUCCESS)
    guarded = msgspec.structs.replace(B, budget=Budget("default", "p", allowed=1))
    await evictor(server).evict([Nomination(PREEMPTOR, "n1", (A, guarded))])
    assert server.writes == [
        ("status", "important"),
        *(("eviction", "b"), ("status", "b")),
        *(("eviction", "a"), ("status", "a")),
    ]


@pytest.mark.parametrize("looks", range(9))
async def test_a_leader_that_is_not_trusted_any_more_writes_nothing_more(looks: int) -> None:
    """It stops between any two writes, and the remaining victims live.

    It looks twice before the nomination and each of the dry runs, which several writes at a time share, and then once.
    """
    server = Server(SUCCESS)
    trusted = iter([True] * looks + [False] * 9)
    outcome, evicted = await evictor(server, trusted=trusted).evict([Nomination(PREEMPTOR, "n1", (A, B))])
    assert outcome is EvictionOutcome.DEPOSED
    assert len(server.writes) + len(server.rehearsed) == min(looks, 6) // 2 + max(looks - 6, 0)
    assert len(evicted) == len(server.evictions) == max(looks - 5, 0) // 2


async def test_an_attempt_is_not_repeated_without_trust() -> None:
    """The response was lost, and the next leader may lead by now."""
    server = Server(LOST)
    outcome, _ = await evictor(server, trusted=iter([True, True, True, False])).evict(
        [Nomination(PREEMPTOR, "n1", (A,))]
    )
    assert outcome is EvictionOutcome.DEPOSED
    assert server.evictions == ["a"]


async def test_a_nomination_that_the_server_does_not_confirm_is_reported() -> None:
    """The caller asks again later."""

    class Down(Server):
        async def request(self, _method: str, _path: str, **_how: Any) -> bytes:  # type: ignore[override]
            raise LOST

    assert not await evictor(Down()).clear_nomination(PREEMPTOR, "n1")


# ---- dry runs --------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("refused", ["a", "b", "c"])
async def test_no_pod_is_evicted_if_the_dry_run_of_one_is_refused(refused: str) -> None:
    """The victims of two preemptors, which need each other: all are tried before the first is evicted."""
    server = Server(SUCCESS)
    server.refusals[refused] = error(429, "Cannot evict pod as it would violate the pod's disruption budget.")
    nominations = [Nomination(PREEMPTOR, "n1", (A, B)), Nomination(pod("second"), "n2", (C,))]
    outcome, evicted = await evictor(server).evict(nominations)
    assert (outcome, evicted) == (EvictionOutcome.REFUSED, [])
    assert server.writes == [("status", "important"), ("status", "second")]


async def test_a_single_victim_needs_no_dry_run() -> None:
    """Its own Eviction says the same."""
    server = Server(SUCCESS)
    await evictor(server).evict([Nomination(PREEMPTOR, "n1", (A,)), Nomination(pod("second"), "n2")])
    assert (server.rehearsed, server.evictions) == ([], ["a"])


async def test_victims_of_rigid_budgets_pass_the_dry_run() -> None:
    """They are deleted afterwards; here the server accepts their Evictions."""
    server = Server(SUCCESS)
    server.refusals["a"] = error(429, "Cannot evict pod as it would violate the pod's disruption budget.")
    violating = msgspec.structs.replace(A, violates=True)
    outcome, evicted = await evictor(server).evict([Nomination(PREEMPTOR, "n1", (violating, B))])
    assert (outcome, evicted) == (EvictionOutcome.EVICTED, [violating, B])
    assert server.rehearsed == ["a", "b"]


@pytest.mark.parametrize(("units", "expected"), [(("", ""), ["a"]), (("u", "u"), ["a", "b"]), (("u", "v"), ["a"])])
async def test_all_of_a_gang_go_once_one_of_them_is_evicted(units: tuple[str, str], expected: list[str]) -> None:
    """The preemptor is gone after the first Eviction; half a gang would be of no use."""
    server = Server(SUCCESS)
    first, second = (msgspec.structs.replace(each, unit=unit) for each, unit in zip((A, B), units, strict=True))
    nominations = [Nomination(PREEMPTOR, "n1", (first, second))]
    await evictor(server).evict(nominations, is_needed=lambda: not server.evictions)
    assert server.evictions == expected


@pytest.mark.parametrize(
    ("response", "outcome", "noted"),
    [
        (SUCCESS, EvictionOutcome.EVICTED, [("a", "Normal", "Moved", "Consolidating", "to n2")]),
        (error(404), EvictionOutcome.EVICTED, []),
        (error(403, "not today"), EvictionOutcome.REFUSED, []),
    ],
)
async def test_a_moved_pod_has_an_event(
    response: ClusterError | bytes, outcome: EvictionOutcome, noted: list[tuple[str, ...]]
) -> None:
    """Only if it was evicted: it may have been gone before, or lives."""
    server = Server(response)
    recorder = Recorder(server, component="test", instance="test")
    assert await evictor(server, recorder).move(A, note="to n2", is_needed=lambda: True) is outcome
    assert events(recorder) == noted


async def test_pods_that_are_of_no_use_without_each_other_end_together() -> None:
    """With an event on each; none of them ends if one must not."""
    server = Server(SUCCESS)
    recorder = Recorder(server, component="test", instance="test")
    ended = evictor(server, recorder).end([A.pod, B.pod], reason="GangIncomplete", note="others are gone")
    assert await ended is EvictionOutcome.EVICTED
    assert (sorted(server.rehearsed), server.evictions) == (["a", "b"], ["a", "b"])
    each = ("Warning", "GangIncomplete", "Evicting", "others are gone")
    assert events(recorder) == [("a", *each), ("b", *each)]
    server = Server(SUCCESS)
    server.refusals["b"] = error(429, "Cannot evict pod as it would violate the pod's disruption budget.")
    refused = evictor(server, recorder).end([A.pod, B.pod], reason="GangIncomplete", note="others are gone")
    assert await refused is EvictionOutcome.REFUSED
    assert server.evictions == []
    assert len(events(recorder)) == 2
