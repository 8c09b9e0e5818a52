"""Resizes of the model: pods that run get other sizes, in between and beside everything else."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import msgspec
from hypothesis import strategies as st
from hypothesis.stateful import precondition, rule

from allocation.errors import AllocationError
from allocation.names import ALLOCATION, RESIZED
from allocation.wire import record
from allocation.wire.resize_record import Size
from scheduler.resize import patches
from scheduler.resize.evaluation import evaluate
from scheduler.resize.live_pod import LivePod
from tests.scheduler.model.machine import Machine
from tests.scheduler.model.recount import counted

if TYPE_CHECKING:
    from tests.scheduler.model.machine import Object

TOKEN = "1/model"  # noqa: S105 -- the token of a term is not a secret


class Resizes(Machine):
    """Users wish sizes, and containers restart; what is refused changes nothing."""

    @precondition(lambda self: self.with_cards())
    @rule(data=st.data(), memory=st.sampled_from((500, 2000, 6000, 15_000)))
    def resize(self, data: st.DataObject, memory: int) -> None:
        """A pod is to have another size: it has, or nothing has changed."""
        pods = self.with_cards()
        pod = pods[data.draw(st.sampled_from(sorted(pods)))]
        meta, state = pod["metadata"], self.cluster.state
        container = data.draw(st.sampled_from(sorted(record.decode(meta["annotations"][ALLOCATION]).containers)))
        shown, before = self.cluster.api.shown("pods", meta["name"], meta["namespace"]), counted(state)
        try:
            change = evaluate(state, shown, meta["annotations"], {container: Size(memory)})
        except AllocationError:
            assert counted(state) == before
            return
        if change is not None:
            self._write(pod, patches.resize(msgspec.convert(pod, LivePod), change, token=TOKEN))
            self.resized(pod, is_larger=change.adjustment.request_delta.memory_mib > 0)

    @precondition(lambda self: self.unsettled())
    @rule(data=st.data())
    def restart(self, data: st.DataObject) -> None:
        """The containers of a pod have the new size."""
        pods = self.unsettled()
        pod = pods[data.draw(st.sampled_from(sorted(pods)))]
        self._write(pod, patches.progress(None, token=TOKEN))

    def with_cards(self) -> dict[str, Object]:
        """Return the pods with an allocation, by name."""
        return {
            each["metadata"]["name"]: each
            for each in self.cluster.placed
            if ALLOCATION in each["metadata"].get("annotations", {})
        }

    def unsettled(self) -> dict[str, Object]:
        """Return the pods whose containers may have an older size, by name."""
        return {name: each for name, each in self.with_cards().items() if RESIZED in each["metadata"]["annotations"]}

    def _write(self, pod: Object, patch: dict[str, Any]) -> None:
        meta = pod["metadata"]
        annotations = {**meta["annotations"], **patch["metadata"]["annotations"]}
        kept = {key: value for key, value in annotations.items() if value is not None}
        self.cluster.api.put("pods", {**pod, "metadata": {**meta, "annotations": kept}})
        self.look()
