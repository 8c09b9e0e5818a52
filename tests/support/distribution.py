"""Which tests run in which of the processes of `make test`: a process keeps to the labs that it has started.

Tests of a module stay together. Modules that share a lab go to the processes that have it, of which there are few,
because a lab costs its start and processor time; modules without a lab fill the rest, the long ones first, so that all
processes end at about the same time.
"""

from __future__ import annotations

import json
import tempfile
from collections import defaultdict
from pathlib import Path
from typing import TYPE_CHECKING, Final

from xdist.scheduler import LoadScopeScheduling

from tests.support.labs import LABS

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    import pytest
    from xdist.remote import Producer
    from xdist.workermanage import WorkerController

NO_LAB: Final = ""
LONG: Final = "long"
"""In place of a lab: a module that takes longer than half a minute without one, by its marker."""


class Distribution(LoadScopeScheduling):  # type: ignore[misc] -- pytest-xdist has no types
    """Gives a process the next module of a lab that it has, of one that it may start, or of none, in this order."""

    def __init__(self, config: pytest.Config, log: Producer | None = None) -> None:
        """Begin without any process."""
        super().__init__(config, log)
        self._labs: dict[WorkerController, set[str]] = defaultdict(set)
        self._lab_of: Mapping[str, str] = {}

    def schedule(self) -> None:
        """Give out the first modules, as soon as all processes have collected them."""
        if self.collection is None:
            self._lab_of = read(self.config.option.testrunuid)
        super().schedule()

    def _split_scope(self, nodeid: str) -> str:
        return nodeid.partition("::")[0]

    def _assign_work_unit(self, node: WorkerController) -> None:
        module = choose(self.workqueue, self._lab_of, own=self._labs[node], taken=self._taken)
        if module is None:  # what is left belongs to the labs of other processes
            node.shutdown()
            return
        self._labs[node] |= {self._lab_of.get(module, NO_LAB)}
        self.workqueue.move_to_end(module, last=False)
        super()._assign_work_unit(node)

    @property
    def _taken(self) -> Mapping[str, int]:
        """How many processes have started each lab."""
        return {lab: sum(lab in labs for labs in self._labs.values()) for lab in LABS}


def choose(modules: Iterable[str], lab_of: Mapping[str, str], *, own: set[str], taken: Mapping[str, int]) -> str | None:
    """Return the module that a process runs next, or None if all are for others.

    Args:
        modules: those that no process has, in their order.
        lab_of: the lab of each module that needs one.
        own: the labs that the process has started.
        taken: how many processes have started each lab.
    """

    def rank(module: str) -> int | None:
        lab = lab_of.get(module, NO_LAB)
        if lab not in LABS:
            return 2 * len(LABS) + (lab != LONG)
        place = list(LABS).index(lab)
        if lab in own:
            return place
        return len(LABS) + place if taken[lab] < LABS[lab] else None

    ranks = {module: place for module in modules if (place := rank(module)) is not None}
    return min(ranks, key=ranks.__getitem__, default=None)


def write(run: str, items: Iterable[pytest.Item]) -> None:
    """Tell the process that distributes the tests which labs they use; it collects none itself.

    Raises:
        ValueError: a module uses two labs, so that a process would start one that it may not.
    """
    labs: dict[str, str] = {}
    for item in items:
        module = item.nodeid.partition("::")[0]
        if LONG in item.keywords:
            labs[module] = LONG
        for lab in LABS.keys() & getattr(item, "fixturenames", ()):
            if labs.setdefault(module, lab) != lab:
                raise ValueError(f"{module} uses the labs {labs[module]} and {lab}; make it two modules")
    _file(run).write_text(json.dumps(labs), encoding="utf-8")


def read(run: str) -> Mapping[str, str]:
    """Return the labs by module, and remove the message."""
    file = _file(run)
    labs: Mapping[str, str] = json.loads(file.read_text(encoding="utf-8"))
    file.unlink()
    return labs


def _file(run: str) -> Path:
    return Path(tempfile.gettempdir()) / f"tranche-tests-{run}.json"
