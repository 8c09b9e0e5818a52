"""How often evictions for a pod were tried without success, and when they may be tried again."""

from collections.abc import Callable, Hashable
from typing import Final, TypeVar

import msgspec

from scheduler.objects import Pod
from scheduler.pod_spec.spec import PodSpec

_MOST: Final = 3
"""The number of attempts that may fail before a pod's spec has to change."""
_FIRST_PAUSE, _LONGEST_PAUSE = 10.0, 300.0
"""Seconds after an attempt that did not end in a Binding; they double."""
_FIRST_LOOK, _LAST_LOOK = 1.0, 30.0
"""Seconds after a look that found no candidates; they double."""
_KEPT: Final = 4096

Key = TypeVar("Key", bound=Hashable)
Value = TypeVar("Value")


class _Failed(msgspec.Struct, frozen=True):
    spec: PodSpec
    count: int
    until: float


class _Futile(msgspec.Struct, frozen=True):
    count: int
    until: float


class Attempts:
    """The attempts for pods, and for kinds of pods for which nothing was found."""

    def __init__(self, clock: Callable[[], float]) -> None:
        """Begin without any; `clock` is in seconds."""
        self._clock = clock
        self._failed: dict[str, _Failed] = {}
        self._futile: dict[Hashable, _Futile] = {}

    def may(self, pod: Pod, kind: Hashable) -> bool:
        """Whether it may be tried now for a pod, given what was found for others of its `kind`."""
        failed, futile, now = self._failed.get(pod.uid), self._futile.get(kind), self._clock()
        if futile is not None and now < futile.until:
            return False
        if failed is None or failed.spec != pod.spec:
            return True
        return failed.count < _MOST and now >= failed.until

    def failed(self, pod: Pod) -> None:
        """Note an attempt that did not end in a Binding."""
        before = self._failed.get(pod.uid)
        count = before.count + 1 if before is not None and before.spec == pod.spec else 1
        pause = min(_FIRST_PAUSE * 2 ** (count - 1), _LONGEST_PAUSE)
        _keep(self._failed, pod.uid, _Failed(pod.spec, count, self._clock() + pause))

    def futile(self, kind: Hashable) -> None:
        """Note that there are no candidates for pods of this kind now."""
        before = self._futile.get(kind)
        count = before.count + 1 if before is not None else 1
        pause = min(_FIRST_LOOK * 2 ** min(count - 1, 10), _LAST_LOOK)
        _keep(self._futile, kind, _Futile(count, self._clock() + pause))

    def found(self, kind: Hashable) -> None:
        """Note that there are candidates for pods of this kind."""
        self._futile.pop(kind, None)


def _keep(table: dict[Key, Value], key: Key, value: Value) -> None:
    """Set a value, and forget the oldest one if there are too many."""
    table.pop(key, None)
    table[key] = value
    if len(table) > _KEPT:
        del table[next(iter(table))]
