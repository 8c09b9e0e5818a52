"""Binds the pods of a gang: first everything that can be refused beforehand for all of them, then their Bindings.

Volumes and Leases come first, then a dry run of each Binding, which passes admission and stores nothing. As long as no
Binding is written, a failure costs nothing: all is released. After that only races and crashes can still refuse one:
its pod keeps what is reserved for it, and is tried again until a deadline, because its gang is useless without it.
"""

import asyncio
import logging
import time
from collections.abc import Awaitable, Callable, Mapping, Sequence
from typing import Final, TypeVar

import msgspec

from cluster.backoff import write_backoff
from cluster.events import Recorder
from scheduler.binding.binder import Result
from scheduler.binding.binding_cycle import BindingCycle
from scheduler.cycle.result import Scheduled
from scheduler.metrics.labels import Outcome
from scheduler.objects import Pod

log = logging.getLogger(__name__)

T = TypeVar("T")

PATIENCE_SECONDS: Final = 60.0
"""For how long a Binding that was refused is written again, unless the gang has a timeout of its own."""


OnResult = Callable[[str, Result], object]
"""Takes the UID of a pod, and what became of it."""


class Member(msgspec.Struct, frozen=True, eq=False):
    """A pod of a gang with the node that is reserved for it."""

    pod: Pod
    chosen: Scheduled


_Note = Callable[[Member, Result], None]


class GangBinding:
    """Binds one gang after another, with a limit on the writes at the same time."""

    def __init__(
        self, binding_cycle: BindingCycle, *, recorder: Recorder, concurrent: int, is_trusted: Callable[[], bool]
    ) -> None:
        """Bind each pod by `binding_cycle`, at most `concurrent` at the same time.

        A Binding that was refused is written again as long as this replica leads.
        """
        self._binding_cycle = binding_cycle
        self._recorder = recorder
        self._is_trusted = is_trusted
        self._slots = asyncio.Semaphore(concurrent)

    async def run(
        self,
        name: str,
        members: Sequence[Member],
        *,
        needed: int,
        patience: float,
        on_result: OnResult = lambda _uid, _result: None,
    ) -> Mapping[str, Result]:
        """Bind `members` of the gang `name`, of which `needed` have to be bound; return the result of each, by UID.

        For those that are not, everything is released. A Binding that is refused after others were written is written
        again for `patience` seconds. `on_result` is called with each result as soon as it is known.
        """
        results: dict[str, Result] = {}

        def note(member: Member, result: Result) -> None:
            results[member.pod.uid] = result
            on_result(member.pod.uid, result)

        if len(members) == 1:
            note(members[0], await self._binding_cycle.run(members[0].pod, members[0].chosen))
            return results
        prepared = await self._prepared(name, members, note, needed=needed)
        outcomes = await self._each(prepared, lambda each: self._binding_cycle.write(each.pod, each.chosen))
        is_any_bound = any(each.outcome is Outcome.BOUND for each in outcomes)

        async def finish(member: Member, result: Result) -> None:
            if is_any_bound and result.outcome is Outcome.REFUSED:
                result = await self._again(name, member, result, patience)
            await self._finish(member, result, note)

        await asyncio.gather(*map(finish, prepared, outcomes))
        return results

    async def _finish(self, member: Member, result: Result, note: _Note) -> None:
        note(member, await self._binding_cycle.finish(member.pod, member.chosen, result))

    async def _prepared(self, name: str, members: Sequence[Member], note: _Note, *, needed: int) -> list[Member]:
        """Return the members that can be bound, or none of them if they are too few; the others are released."""
        failures = await self._each(members, lambda each: self._binding_cycle.prepare(each.pod, each.chosen))
        ready = [each for each, failure in zip(members, failures, strict=True) if failure is None]
        for each, failure in zip(members, failures, strict=True):
            if failure is not None:
                await self._finish(each, failure, note)
        refusals: list[str] = []
        if len(ready) >= needed:
            refusals = await self._each(ready, lambda each: self._binding_cycle.rehearse(each.pod, each.chosen))
            refused = [(each, why) for each, why in zip(ready, refusals, strict=True) if why]
            ready = [each for each, why in zip(ready, refusals, strict=True) if not why]
            for each, why in refused:
                await self._finish(each, Result(Outcome.REFUSED, why), note)
        if len(ready) >= needed:
            return ready
        why = next((each.note for each in failures if each is not None), next(filter(None, refusals), ""))
        text = f"another pod of gang {name} cannot be bound: {why}"
        log.warning("gang %s is not bound: %s", name, why)
        for each in ready:
            result = Result(Outcome.REFUSED, text, reason="GangIncomplete")
            await self._finish(each, result, note)
        return []

    async def _again(self, name: str, member: Member, result: Result, seconds: float) -> Result:
        """Write a Binding again that was refused although others of the gang are bound, at most for some seconds."""
        note = f"the other pods of gang {name} are bound, and this one is not: {result.note}; trying again"
        self._recorder.record(
            member.pod.reference, type="Warning", reason="GangIncomplete", action="Binding", note=note
        )
        backoff, until = write_backoff(), time.monotonic() + seconds
        while result.outcome is Outcome.REFUSED and time.monotonic() < until and self._is_trusted():
            await asyncio.sleep(backoff.next())
            result = await self._binding_cycle.write(member.pod, member.chosen)
        return result

    async def _each(self, members: Sequence[Member], write: Callable[[Member], Awaitable[T]]) -> list[T]:
        async def one(member: Member) -> T:
            async with self._slots:
                return await write(member)

        return await asyncio.gather(*map(one, members))
