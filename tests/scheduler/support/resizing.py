"""Pods that are resized: what a user writes, what a kubelet reports, and what the term charges."""

from __future__ import annotations

from contextlib import asynccontextmanager
from typing import TYPE_CHECKING, Any

from allocation.names import ALLOCATION, RESIZE, RESIZED
from allocation.wire import record
from tests.scheduler.support.terms import Cluster, leading

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

    from allocation.allocation import CardShare

CARD = "GPU-n0-0"


class Resizing(Cluster):
    """A cluster of whose pods each has one container, on the first card of node n0 unless annotations say otherwise."""

    async def runs(self, name: str, memory: int, *, generation: int | None = 1, **more: Any) -> None:
        """Create a pod, and wait until it has its card and the kubelet has started it."""
        annotations = {"nvidia.com/use-gpuuuid": CARD, **more.pop("annotations", {})}
        self.pod(name, memory=memory, annotations=annotations, **more)
        await self.placed(name)
        if generation is not None:
            self._change(name, {"metadata": {"generation": generation}})
        self.report(name, observed=generation or 0, container=f"{name}-first")

    def wish(self, name: str, text: str | None) -> None:
        """Write the annotation by which a user resizes a pod; None removes it."""
        annotations = dict(self.shown(name)["metadata"].get("annotations", {}))
        annotations.pop(RESIZE, None)
        more = {} if text is None else {RESIZE: text}
        self._change(name, {"metadata": {"annotations": {**annotations, **more}}})

    def has_seen_wish(self, name: str) -> bool:
        """Whether the scheduler has seen the annotation by which a user resizes a pod, which it knows to run."""
        seen = self.term.state.running.get(f"uid-{name}")
        return seen is not None and RESIZE in seen.metadata.annotations

    def report(self, name: str, *, observed: int, container: str, **state: Any) -> None:
        """Report the status of a pod, as a kubelet that has seen a generation of it."""
        status = {"name": "main", "containerID": container, "state": state or {"running": {}}}
        observed_generation = {"observedGeneration": observed} if observed else {}
        self._change(name, {"status": {"phase": "Running", **observed_generation, "containerStatuses": [status]}})

    def _change(self, name: str, fields: dict[str, Any]) -> None:
        shown = self.shown(name)
        changed = {
            key: {**shown.get(key, {}), **value} if isinstance(value, dict) else value for key, value in fields.items()
        }
        self.api.put("pods", {**shown, **changed})

    def annotation(self, name: str, key: str) -> str | None:
        """Return an annotation of a pod."""
        found: str | None = self.shown(name)["metadata"].get("annotations", {}).get(key)
        return found

    def share(self, name: str) -> CardShare:
        """Return the share in a pod's allocation."""
        return record.decode(self.annotation(name, ALLOCATION) or "").containers["main"][0]

    def charged(self, name: str) -> tuple[int, int]:
        """Return the MiB and millicards that the term charges a pod for."""
        reservation = self.term.ledger.reservation(f"uid-{name}")
        assert reservation is not None
        (charge,) = reservation.charges
        return charge.memory_mib, charge.cores

    async def has(self, name: str, memory: int) -> None:
        """Wait until a pod's allocation has this much memory."""
        await self.until(lambda: self.share(name).memory_mib == memory, f"{memory} MiB for {name}")

    async def is_charged(self, name: str, memory: int) -> None:
        """Wait until a pod is charged this much memory."""
        await self.until(lambda: self.charged(name)[0] == memory, f"{memory} MiB charged to {name}")

    async def is_over(self, name: str) -> None:
        """Wait until no container of a pod has an older size."""
        await self.until(lambda: self.annotation(name, RESIZED) is None, f"the end of the resize of {name}")


@asynccontextmanager
async def resizing(cluster: Resizing, **settings: Any) -> AsyncIterator[Resizing]:
    """Run a term that resizes pods."""
    async with leading(cluster, resize=True, **settings):
        yield cluster
