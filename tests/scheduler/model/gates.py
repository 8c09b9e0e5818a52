"""Scheduling gates of the model: a pod that has some gets nothing, and nothing is held for it."""

from __future__ import annotations

from hypothesis import strategies as st
from hypothesis.stateful import invariant, precondition, rule

from tests.scheduler.model.machine import Machine
from tests.scheduler.support.explaining import explained


class Gates(Machine):
    """Some pods have a gate at their creation (`Asked.is_gated`)."""

    @precondition(lambda self: self.cluster.gated)
    @rule(data=st.data())
    def ungate(self, data: st.DataObject) -> None:
        """The gates of a pod are removed."""
        self.cluster.ungate(data.draw(st.sampled_from(sorted(self.cluster.gated))))
        self.look()

    @invariant()
    def a_gated_pod_has_nothing(self) -> None:
        """Neither a node nor a hold nor a place in the queue; its explanation says why."""
        state = self.cluster.state
        for pod in self.cluster.gated.values():
            meta = pod["metadata"]
            assert "nodeName" not in pod["spec"]
            assert (state.queue.get(meta["uid"]), state.holds.of(meta["uid"])) == (None, None)
            shown = self.cluster.api.shown("pods", meta["name"], meta["namespace"])
            assert explained(state, shown).outcome == "gated"
