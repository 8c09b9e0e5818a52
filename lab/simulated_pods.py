"""What the simulated kubelets report of their pods: that they run, and how they ended.

A pod ends as a kubelet ends it: its containers get SIGTERM, after their `preStop` hooks if these sleep, and end at
once; a hook that sleeps for longer than the grace period is cut off by SIGKILL. Then the pod is Failed.
"""

from __future__ import annotations

from typing import Any

import msgspec

from cluster.metadata import ObjectMeta

SIMULATED = "Simulated"
_TERMINATED = 143  # SIGTERM
_KILLED = 137  # SIGKILL


class Meta(ObjectMeta, rename="camel"):
    """Metadata with the end of the pod, once a client has deleted it."""

    deletion_timestamp: str | None = None
    deletion_grace_period_seconds: int | None = None


class Sleep(msgspec.Struct):
    """A hook that only sleeps."""

    seconds: int = 0


class Hook(msgspec.Struct):
    """A hook, of which only those that sleep can be simulated."""

    sleep: Sleep = msgspec.field(default_factory=Sleep)


class Lifecycle(msgspec.Struct, rename="camel"):
    """The hooks of a container."""

    pre_stop: Hook = msgspec.field(default_factory=Hook)


class Container(msgspec.Struct, rename="camel"):
    """A container; an init container with a restart policy is a sidecar."""

    name: str
    image: str = ""
    restart_policy: str | None = None
    lifecycle: Lifecycle = msgspec.field(default_factory=Lifecycle)


class Spec(msgspec.Struct, rename="camel"):
    """The spec of a pod."""

    node_name: str = ""
    containers: list[Container] = []
    init_containers: list[Container] = []


class Status(msgspec.Struct, rename="camel"):
    """The status of a pod."""

    phase: str = ""
    start_time: str | None = None


class Pod(msgspec.Struct):
    """A pod as its kubelet needs it."""

    metadata: Meta
    spec: Spec
    status: Status = msgspec.field(default_factory=Status)

    def __str__(self) -> str:
        return f"pod {self.metadata.namespace}/{self.metadata.name}"

    @property
    def finished(self) -> bool:
        """Whether its containers have ended."""
        return self.status.phase in ("Succeeded", "Failed")

    @property
    def ends_after_seconds(self) -> int:
        """How long its containers continue after its deletion."""
        grace = self.metadata.deletion_grace_period_seconds or 0
        return min(grace, max((each.lifecycle.pre_stop.sleep.seconds for each in self.spec.containers), default=0))


def running(pod: Pod, *, now: str) -> dict[str, Any]:
    """Return the status of a pod that runs and is Ready, with its init containers completed."""
    state = {"running": {"startedAt": now}}
    done = _terminated(0, "Completed", started=now, now=now)
    message = f"node {pod.spec.node_name} is simulated: the pod is reported Ready, but its containers do not run"
    return {
        "phase": "Running",
        "reason": SIMULATED,
        "message": message,
        "startTime": now,
        "conditions": _conditions({"PodReadyToStartContainers", "Initialized", "ContainersReady", "Ready"}, since=now),
        "containerStatuses": [_container(each, state) for each in pod.spec.containers],
        "initContainerStatuses": [
            _container(each, state if each.restart_policy == "Always" else done) for each in pod.spec.init_containers
        ],
    }


def ended(pod: Pod, *, now: str) -> dict[str, Any]:
    """Return the status of a pod whose containers have ended because it was deleted."""
    started = pod.status.start_time or now
    grace = pod.metadata.deletion_grace_period_seconds or 0

    def state(container: Container) -> dict[str, Any]:
        is_killed = container.lifecycle.pre_stop.sleep.seconds > grace
        return _terminated(_KILLED if is_killed else _TERMINATED, "Error", started=started, now=now)

    done = _terminated(0, "Completed", started=started, now=started)
    return {
        "phase": "Failed",
        "conditions": _conditions({"Initialized"}, since=now),
        "containerStatuses": [_container(each, state(each), ready=False) for each in pod.spec.containers],
        "initContainerStatuses": [
            _container(each, state(each), ready=False) if each.restart_policy == "Always" else _container(each, done)
            for each in pod.spec.init_containers
        ],
    }


def _conditions(true: set[str], *, since: str) -> list[dict[str, str]]:
    names = ("PodReadyToStartContainers", "Initialized", "ContainersReady", "Ready")
    return [
        {"type": name, "status": "True" if name in true else "False", "lastTransitionTime": since} for name in names
    ]


def _terminated(code: int, reason: str, *, started: str, now: str) -> dict[str, Any]:
    return {"terminated": {"exitCode": code, "reason": reason, "startedAt": started, "finishedAt": now}}


def _container(container: Container, state: dict[str, Any], *, ready: bool = True) -> dict[str, Any]:
    return {
        "name": container.name,
        "image": container.image,
        "imageID": "",
        "ready": ready,
        "started": ready,
        "restartCount": 0,
        "state": state,
    }
