"""GPUBindings of the model: cards, or parts of their memory, belong to the applications of users."""

from __future__ import annotations

from typing import TYPE_CHECKING

from hypothesis import strategies as st
from hypothesis.stateful import initialize, invariant, rule

from tests.scheduler.model import books
from tests.scheduler.model.cluster import UUIDS
from tests.scheduler.model.machine import Machine

if TYPE_CHECKING:
    from tests.scheduler.model.machine import Object

Grants = dict[str, tuple[str, str]]
"""The card and the memory of each binding by name."""


class Bindings(Machine):
    """At most two at a time."""

    def __init__(self) -> None:
        super().__init__()
        self.grants: Grants = {}
        self._granted: dict[str, Grants | None] = {}

    @initialize(alices=st.integers(0, 2), mode=st.sampled_from((1, 0, 2)))
    def grant(self, alices: int, mode: int) -> None:
        """Alice may have cards from the beginning."""
        for name, uuid in zip("xy"[:alices], UUIDS, strict=False):
            self.bind(name, uuid, "alice", "3Gi")
            self.share(uuid, mode)

    @rule(
        name=st.sampled_from("xy"),
        uuid=st.sampled_from(UUIDS),
        owner=st.sampled_from(("alice", "bob")),
        memory=st.sampled_from(("", "3Gi")),
    )
    def bind(self, name: str, uuid: str, owner: str, memory: str) -> None:
        """A card is given to a user's application, or a part of its memory."""
        spec = {"uuid": uuid, "appName": "render", "owner": owner, "podSelector": {}}
        spec |= {"memory": memory} if memory else {}
        self.grants[name] = uuid, memory
        self.put("gpubindings", name, spec)

    @rule(uuid=st.sampled_from(UUIDS), mode=st.integers(0, 2))
    def share(self, uuid: str, mode: int) -> None:
        """How pods share a bound card changes."""
        self.cluster.share(uuid, mode)
        self.changed()

    @rule(name=st.sampled_from("xy"))
    def unbind(self, name: str) -> None:
        """It is taken away."""
        self.grants.pop(name, None)
        self.remove("gpubindings", name)

    def created(self, name: str) -> None:
        """Note what admission knew."""
        super().created(name)
        self._granted[name] = dict(self.grants)

    def placed(self, pods: list[Object]) -> None:
        """Forget what admission knew where that is not true any more."""
        super().placed(pods)
        for pod in pods:
            if self._granted[pod["metadata"]["name"]] != self.grants:
                self._granted[pod["metadata"]["name"]] = None

    def resized(self, pod: Object, *, is_larger: bool) -> None:
        """Forget what admission knew."""
        super().resized(pod, is_larger=is_larger)
        self._granted[pod["metadata"]["name"]] = None

    @invariant()
    def a_slice_is_what_its_container_states(self) -> None:
        """Where memory is counted and the card is not the pod's alone, admission and scheduler mean the same amount.

        Unless bindings differ in what they give, or have changed since admission.
        """
        for pod in self.cluster.placed:
            granted = self._granted[pod["metadata"]["name"]]
            is_known = granted is not None and len({memory for _, memory in granted.values()}) <= 1
            for each in books.held(pod):
                is_part = each.memory_mib not in (0, self.cluster.sizes[each.card].memory_mib)
                if is_known and books.stated(pod) and is_part:
                    assert each.memory_mib == books.stated(pod), pod["metadata"]
