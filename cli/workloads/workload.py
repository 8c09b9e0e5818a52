"""A workload and the pods that its controller makes."""

from collections.abc import Callable, Iterable, Sequence
from typing import Any

import msgspec

from cli.errors import CommandError


class UnreadableWorkloadError(CommandError):
    """A field with a number of pods does not hold a whole number."""


class Workload(msgspec.Struct, frozen=True):
    """An object and the pods that it makes.

    Attributes:
        owner: the kind and the name, for messages.
        total: how many pods exist at once; 1 for a DaemonSet whose nodes are not known yet.
        make: returns the manifest of the pod with a number below `total`.
        user: the identity of the controller that creates the pods; empty for a pod that a person creates.
        note: a remark for the user, such as that the workload is suspended, or empty.
        make_on: returns the pod of one node; None except for a DaemonSet.
        is_ordered: whether each pod is created only after all pods before it are ready.
        make_claims: returns the manifests of the claims that the controller creates together with the pod with a
            number.
    """

    owner: str
    total: int
    make: Callable[[int], dict[str, Any]]
    user: str = ""
    note: str = ""
    make_on: Callable[[str], dict[str, Any]] | None = None
    is_ordered: bool = False
    make_claims: Callable[[int], Iterable[dict[str, Any]]] = lambda _: ()

    def on(self, nodes: Sequence[str]) -> "Workload":
        """Return the same DaemonSet with a pod on each of `nodes`."""
        make_on = self.make_on
        if make_on is None:
            return self
        note = self.note if nodes else "no node matches its nodeSelector, its affinity and its tolerations"
        return msgspec.structs.replace(self, total=len(nodes), make=lambda number: make_on(nodes[number]), note=note)
