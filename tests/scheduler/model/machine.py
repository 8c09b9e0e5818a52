"""What all rules of the model share: the cluster, the time that goes by, and calls when pods come and get nodes."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any, TypeVar
from unittest.mock import Mock, patch

from hypothesis.stateful import RuleBasedStateMachine

from tests.scheduler.model.cluster import Cluster

if TYPE_CHECKING:
    from collections.abc import Coroutine

T = TypeVar("T")
Object = dict[str, Any]


class Machine(RuleBasedStateMachine):
    """The rules of each feature are a subclass; the model has them all.

    Attributes:
        cluster: the cluster.
        kinds: what each pod asked for, by its name.
    """

    def __init__(self) -> None:
        super().__init__()
        self._runner = asyncio.Runner()
        self._placed: set[str] = set()
        self._changes = 0
        self.cluster = Cluster()
        self.kinds: dict[str, str] = {}
        # Queues are charged for real time, so a busy machine would have other pods scheduled first.
        self._time = patch("scheduler.pacing.time", Mock(monotonic=self.cluster.scene.clock))
        self._time.start()
        self.run(self.cluster.start())

    def teardown(self) -> None:
        """End what runs."""
        self.run(self.cluster.stop())
        self._time.stop()
        self._runner.close()

    def run(self, what: Coroutine[Any, Any, T]) -> T:
        """Run until it is done."""
        return self._runner.run(what)

    def put(self, plural: str, name: str, spec: Object, namespace: str = "") -> None:
        """Create or change an object."""
        metadata = {"name": name, **({"namespace": namespace} if namespace else {})}
        self.run(self.cluster.put(plural, {"metadata": metadata, "spec": spec}))
        self.changed()

    def remove(self, plural: str, name: str, namespace: str = "") -> None:
        """Delete an object, if it exists."""
        self.run(self.cluster.remove(plural, name, namespace))
        self.changed()

    def changed(self) -> None:
        """Let the scheduler look after every second change of an object, so that it also meets two at once."""
        self._changes += 1
        if self._changes % 2 == 0:
            self.look()

    def look(self, seconds: float = 1.0) -> None:
        """Let the scheduler place pods."""
        self.run(self.cluster.look(seconds))
        new = [pod for pod in self.cluster.placed if pod["metadata"]["name"] not in self._placed]
        self._placed |= {pod["metadata"]["name"] for pod in new}
        self.placed(new)
        self.settled()

    def is_fixed(self, pod: Object) -> bool:
        """Whether a pod has a static allocation, which counts and is not itself checked (docs/quotas.md)."""
        return self.kinds[pod["metadata"]["name"]].startswith("fixed")

    def created(self, name: str) -> None:
        """Note that admission has let a pod in."""

    def placed(self, pods: list[Object]) -> None:
        """Note that pods have got nodes."""

    def resized(self, pod: Object, *, is_larger: bool) -> None:
        """Note that a pod has another size."""

    def settled(self) -> None:
        """Note that the scheduler has decided about all pods that are due."""
