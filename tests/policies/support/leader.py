"""The scheduler that leads, played by the test: the Leadership, its token, and the pods that it has bound."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from allocation.names import ALLOCATION, LEADER, SYSTEM_NAMESPACE
from cluster.resource import LEADERSHIPS
from lab import wait
from lab.client import client
from tests.policies.support.leases import card_lease
from tests.policies.support.pods import NODE, binding
from tests.support import identities
from tests.support.patience import PATIENCE_S
from tests.support.refusals import refusal

if TYPE_CHECKING:
    from lab.layout import Layout

NAME, IDENTITY, EPOCH = "tranche-scheduler", "policies", 7
TOKEN, FORMER = f"{EPOCH}/{IDENTITY}", f"{EPOCH - 1}/{IDENTITY}"


class Leader:
    """The scheduler's identity.

    Attributes:
        api: the API server, for the scheduler.
    """

    def __init__(self, layout: Layout) -> None:
        self._layout = layout
        self.api = identities.process(layout, "scheduler")

    def lead(self) -> None:
        """Write the Leadership, and wait until the fence knows it."""
        body = {"apiVersion": LEADERSHIPS.api_version, "kind": LEADERSHIPS.kind, "metadata": {"name": NAME}}
        spec = {"epoch": EPOCH, "identity": IDENTITY}
        client(self._layout).apply({**body, "spec": spec}, namespace=SYSTEM_NAMESPACE)
        probe = card_lease(0, node="probe", token=TOKEN)
        wait.until(
            lambda: not refusal(lambda: self.api.create(probe, namespace=SYSTEM_NAMESPACE, dry_run=True)),
            what="the fence with its parameter",
            timeout_s=PATIENCE_S,
        )

    def resign(self) -> None:
        """Delete the Leadership."""
        client(self._layout).delete("leadership", NAME, namespace=SYSTEM_NAMESPACE, missing_ok=True)

    def bind(self, namespace: str, body: dict[str, Any]) -> None:
        """Post a Binding."""
        path = self.api.path("pods", body["metadata"]["name"], namespace=namespace, subresource="binding")
        self.api.request("POST", path, body=body)

    def place(self, namespace: str, sent: dict[str, Any], annotations: dict[str, str] | None = None) -> dict[str, Any]:
        """Create a pod, bind it with an allocation, and report as its node that it runs; return it."""
        name = sent["metadata"]["name"]
        sent["spec"].pop("schedulingGates", None)
        client(self._layout).create(sent, namespace=namespace)
        self.bind(namespace, binding(name, {LEADER: TOKEN, ALLOCATION: "{}", **(annotations or {})}))
        status = {"phase": "Running", "conditions": [{"type": "Ready", "status": "True"}]}
        return identities.kubelet(self._layout, NODE).patch(
            "pods", name, {"status": status}, namespace=namespace, subresource="status", by="strategic"
        )
