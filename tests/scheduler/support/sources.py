"""Pods and all that says something about their cards, as admission and the scheduler see them."""

import json
from typing import Any

import msgspec

from allocation import names
from allocation.claim import ClaimDevices, ClaimSpec
from allocation.names import SHARE_MODE_PREFIX
from allocation.settings import AllocationSettings, BindingSettings
from cluster.gpu_binding import GpuBinding
from scheduler.gpu_requirements import GpuRequirements
from scheduler.objects import Pod
from scheduler.state.cluster_state import ClusterState
from tests.scheduler.support import claims
from tests.scheduler.support.app_pods import app_labels, gpu_binding
from tests.scheduler.support.builders import node, state, status
from webhook import dry_run
from webhook.bindings import ClusterBindings
from webhook.quotas import Quotas
from webhook.settings import WebhookSettings

TRUSTED = "system:serviceaccount:tranche-system:tranche-static"
MEMORY = "nvidia.com/gpumem"
CARDS = ("GPU-n0-0", "GPU-n0-1")
AMOUNTS = (None, 2000, 3000)
DEVICES: tuple[dict[str, Any] | None, ...] = (
    None,
    {"exclusivity": "Exclusive"},
    {"exclusivity": "Shared"},
    {"exclusivity": "Shared", "memoryMiB": 3000},
    {"exclusivity": "Shared", "memoryMiB": 2000, "cores": 30},
    {"exclusivity": "MIG"},
    {"exclusivity": "MIG", "memoryMiB": 3000},
)
STATIC: tuple[dict[str, Any] | None, ...] = (
    None,
    *({"uuid": card, "memoryMiB": mib, "cores": 300} for card in (*CARDS, "GPU-else") for mib in (2000, 3000)),
    {"uuid": CARDS[0], "memoryMiB": 3000, "cores": 1000},
)


class Drawn(msgspec.Struct, frozen=True):
    """A pod and all that says something about its cards.

    Attributes:
        static: its share of one card by a static allocation, without the index.
        bindings: the memory of the binding of each card, -1 for no binding; None if the pod belongs to no application.
        devices: `spec.devices` of its claim.
        stated: the memory in its container.
        default: the default memory of the configuration.
    """

    static: dict[str, Any] | None = None
    bindings: tuple[int | None, ...] | None = None
    devices: dict[str, Any] | None = None
    stated: int | None = None
    default: int = 0

    @property
    def settings(self) -> AllocationSettings:
        """The settings of both processes."""
        return AllocationSettings(bindings=BindingSettings("labelled"), default_memory_mib=self.default)

    @property
    def claim(self) -> ClaimSpec | None:
        """The claim, which the API server checks as it does this conversion."""
        return ClaimSpec(msgspec.convert({"count": 1, **self.devices}, ClaimDevices)) if self.devices else None

    @property
    def kind(self) -> str | None:
        """How the claim has its cards; None without a claim."""
        return self.devices["exclusivity"] if self.devices else None

    def granted(self) -> list[GpuBinding]:
        """Return the bindings of the pod's application."""
        return [
            gpu_binding(f"b{at}", CARDS[at], owner="alice", **({} if mib is None else {"memory": str(mib)}))
            for at, mib in enumerate(self.bindings or ())
            if mib != -1
        ]

    def annotations(self) -> dict[str, str]:
        """Return the annotations that choose cards."""
        found = {names.CLAIM: "c"} if self.devices else {}
        if self.static is not None:
            share = {"index": 0, **self.static}
            found[names.ALLOCATION] = json.dumps({"v": 1, "node": "n0", "containers": {"main": [share]}})
        return found

    def manifest(self) -> dict[str, Any]:
        """Return the pod as its user writes it; what would contradict another source in the pod itself is left out."""
        stated = {MEMORY: str(self.stated)} if self.stated and not self.devices and self.static is None else {}
        limits = {"nvidia.com/gpu": "1", **stated}
        labels = app_labels(owner="alice") if self.bindings is not None else {}
        metadata = {"name": "p", "namespace": "default", "labels": labels, "annotations": self.annotations()}
        return {"metadata": metadata, "spec": {"containers": [{"name": "main", "resources": {"limits": limits}}]}}


def admit(drawn: Drawn) -> dict[str, Any]:
    """Return the pod as admission prepares it; raises what refuses it."""
    bindings = ClusterBindings(None, drawn.settings.bindings)  # type: ignore[arg-type]  # nothing is read from the API
    for each in drawn.granted():
        bindings.set(each)
    manifest = drawn.manifest()
    dry_run.admit(
        manifest,
        username=TRUSTED,
        allocation=drawn.settings,
        settings=WebhookSettings(),
        quotas=Quotas(),
        find_claim=lambda _: drawn.claim,
        find_membership=lambda _: None,
        find_bound=lambda labels: bindings.of_pod(labels, "default"),
    )
    return manifest


def prepared_before(drawn: Drawn) -> dict[str, Any]:
    """Return the pod as it was admitted before there were bindings, and before its claim differed from its allocation.

    So it reaches the scheduler also where admission refuses it now.
    """
    is_claimed, is_bound = drawn.devices is not None, drawn.bindings is not None and drawn.static is None
    static = None if is_claimed else drawn.static
    manifest = admit(msgspec.structs.replace(drawn, bindings=() if is_bound else None, static=static))
    manifest["metadata"]["labels"] = drawn.manifest()["metadata"]["labels"]
    if drawn.static is not None and is_claimed:
        written = json.loads(drawn.annotations()[names.ALLOCATION])
        marked = {**written, "claim": {"name": "c", "exclusivity": drawn.kind}}
        manifest["metadata"]["annotations"][names.ALLOCATION] = json.dumps(marked)
    return manifest


def scheduler(drawn: Drawn) -> ClusterState:
    """Return the state of a scheduler that knows claim and bindings, with cards that are divided by memory."""
    made = state(settings=drawn.settings)
    modes = {f"{SHARE_MODE_PREFIX}{card}": "1" for card in CARDS}
    made.set_node(node("n0", metadata={"name": "n0", "labels": {}, "annotations": modes}))
    made.agent_reports.set(status("n0", memory=40960))
    for each in drawn.granted():
        made.bindings.set(each)
    if drawn.devices is not None:
        made.set_claim(claims.claim("c", **drawn.devices))
    return made


def read(drawn: Drawn, manifest: dict[str, Any]) -> GpuRequirements:
    """Return the requirements that the scheduler reads from a pod; raises what refuses it."""
    pod = msgspec.convert(manifest, Pod)
    return scheduler(drawn).requirements.of(pod)
