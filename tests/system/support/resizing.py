"""The lab with the component that lets running pods have another size, and kubelets that report what they have seen."""

from __future__ import annotations

from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

from allocation.names import ALLOCATION, FENCED_LABEL, LEADER, RESIZE, RESIZED
from allocation.wire import record
from lab import manifests, wait
from lab.client import client
from tests.support import identities
from tests.support.patience import PATIENCE_S
from tests.support.refusals import refusal
from tests.system.conftest import Namespace, pod
from tests.system.support.hami_nodes import delete
from tests.system.support.restarts import restart

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from allocation.allocation import CardShare
    from lab.layout import Layout

FLAG = "--resize=true"
_POLICY = "tranche-allocation-update"
_SCHEDULER = "system:serviceaccount:tranche-system:tranche-scheduler"


def component() -> list[dict[str, Any]]:
    """Return the objects that manifests/resize adds."""
    file = manifests.ROOT / "resize" / "scheduler.yaml"
    return manifests.read(file.read_text(encoding="utf-8"))


@contextmanager
def resizing(layout: Layout, namespace: Namespace) -> Iterator[None]:
    """Run the scheduler with the component, once it is in force; restore the lab afterwards."""
    client(layout).apply(*component())
    _permit(layout, f"['{_SCHEDULER}']")
    _until_in_force(layout, namespace)
    restart(layout, "scheduler", FLAG)
    yield
    restart(layout, "scheduler")
    _permit(layout, "[]")
    delete(layout, *component())


def _permit(layout: Layout, expression: str) -> None:
    """Set who may change the allocation of a running pod, as the component does."""
    variables = client(layout).get("validatingadmissionpolicy", _POLICY)["spec"]["variables"]
    changed = [{**each, "expression": expression} if each["name"] == "resizers" else each for each in variables]
    client(layout).patch("validatingadmissionpolicies", _POLICY, {"spec": {"variables": changed}})


def _until_in_force(layout: Layout, namespace: Namespace) -> None:
    """Wait until the policies judge a change by the token of the leader."""
    namespace.create(pod("probe", node="gpu-sim-0", gpu=1, gpumem=100))
    namespace.placed(1)
    scheduler = identities.process(layout, "scheduler")
    annotations = {ALLOCATION: '{"v":1}', LEADER: "0/probe"}
    change = {"metadata": {"labels": {FENCED_LABEL: "true"}, "annotations": annotations}}
    wait.until(
        lambda: (
            "does not lead any more"
            in refusal(lambda: scheduler.patch("pods", "probe", change, namespace=namespace.name))
        ),
        what="the component resize in force",
        timeout_s=PATIENCE_S,
    )
    namespace.delete("pods", "probe", grace_s=1)


class Sized:
    """A pod with one container that is to have several sizes."""

    def __init__(self, namespace: Namespace, name: str) -> None:
        self.namespace, self.name = namespace, name

    def wish(self, text: str | None) -> None:
        """Write the annotation by which a user wishes a size."""
        self.namespace.patch("pods", self.name, {"metadata": {"annotations": {RESIZE: text}}})

    def shown(self) -> dict[str, Any]:
        """Return the pod."""
        return self.namespace.pod(self.name)

    def share(self) -> CardShare:
        """Return its share of its card."""
        return _share(self.shown())

    def until_has(self, memory: int) -> dict[str, Any]:
        """Wait until it has this much memory, and return it."""

        def has(pods: Mapping[str, Any]) -> dict[str, Any] | None:
            found = pods.get(self.name)
            return found if found is not None and _share(found).memory_mib == memory else None

        return self.namespace.until(has, what=f"{memory} MiB for {self.name}")

    def until_over(self) -> None:
        """Wait until none of its containers can have an older size."""

        def is_over(pods: Mapping[str, Any]) -> bool:
            return RESIZED not in pods[self.name]["metadata"]["annotations"]

        self.namespace.until(is_over, what=f"the end of the resize of {self.name}")

    def report(self, container: str, *, generation: int | None = None) -> None:
        """Report its container, as a kubelet that has seen this generation, by default the current one."""
        shown = self.shown()
        seen = shown["metadata"]["generation"] if generation is None else generation
        status = {
            "phase": "Running",
            "observedGeneration": seen,
            "containerStatuses": [
                {
                    "name": "main",
                    "containerID": f"test://{container}",
                    "image": "none",
                    "imageID": "none",
                    "ready": True,
                    "restartCount": 0,
                    "state": {"running": {}},
                }
            ],
        }
        identities.kubelet(self.namespace.layout, shown["spec"]["nodeName"]).patch(
            "pods", self.name, {"status": status}, namespace=self.namespace.name, subresource="status", by="strategic"
        )

    def until_noted(self, container: str) -> None:
        """Wait until a container is noted that may have the old size."""

        def is_noted(pods: Mapping[str, Any]) -> bool:
            return f"test://{container}" in pods[self.name]["metadata"]["annotations"].get(RESIZED, "")

        self.namespace.until(is_noted, what=f"container {container} noted")

    def until_event(self, reason: str, words: str = "") -> str:
        """Wait for an event of it with these words, and return its note."""

        def note(events: Mapping[str, Any]) -> str | None:
            found = (
                each["message"]
                for each in events.values()
                if each["reason"] == reason and each["involvedObject"]["name"] == self.name and words in each["message"]
            )
            return next(found, None)

        return self.namespace.until(note, "events", what=f"event {reason}: {words}")


def _share(shown: dict[str, Any]) -> CardShare:
    (share,) = record.decode(shown["metadata"]["annotations"][ALLOCATION]).containers["main"]
    return share
