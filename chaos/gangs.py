"""The books about gangs: no gang stays half placed while all of its pods exist."""

from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping
from typing import Final, NamedTuple

from chaos.pod import Pod
from chaos.violation import Kind

SIZE: Final = 3
"""The pods of a gang of the load, all of which are necessary."""


class GangName(NamedTuple):
    """The namespace and the name of a gang."""

    namespace: str
    name: str


class Gangs:
    """The gangs that are half placed, and since when."""

    def __init__(self, *, report: Callable[[Kind, str, str], None], patience_seconds: float) -> None:
        """`report` each gang that is half placed for longer than `patience_seconds`."""
        self._report = report
        self._patience = patience_seconds
        self._half_since: dict[GangName, float] = {}

    def tick(self, pods: Iterable[Pod], *, now: float) -> None:
        """Check all gangs; a gang of which a pod has ended or is being deleted is not expected to be whole."""
        half = {name for name, members in members_of(pods).items() if is_half_placed(members)}
        self._half_since = {name: self._half_since.get(name, now) for name in half}
        for name, since in self._half_since.items():
            if now - since > self._patience:
                self._report(Kind.HALF_A_GANG, "/".join(name), f"only some of its {SIZE} pods have nodes")


def members_of(pods: Iterable[Pod]) -> Mapping[GangName, list[Pod]]:
    """Return the pods of each gang."""
    found: defaultdict[GangName, list[Pod]] = defaultdict(list)
    for pod in pods:
        if pod.gang:
            found[GangName(pod.name.partition("/")[0], pod.gang)].append(pod)
    return found


def is_half_placed(members: list[Pod]) -> bool:
    """Whether some of a gang's pods have nodes and others wait, although all exist and none has ended."""
    placed = sum(bool(each.node) and not each.ended for each in members)
    waiting = sum(each.is_pending for each in members)
    return placed > 0 and waiting > 0 and placed + waiting == SIZE
