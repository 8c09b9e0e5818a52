"""The plugin: stays registered with the container runtime, and answers for each container that it creates.

While the agent is away, containerd's validator refuses the containers of pods that need it, by an annotation of theirs
(docs/agent.md#by-the-agent-itself). Where the validator is off, such a container starts without cards; it is reported
as soon as the agent is back, and gets its cards when it starts again.
"""

import asyncio
import logging
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Final

from google.protobuf.message import Message

from agent.nri import connection
from agent.nri.cards import delivered, is_delivered
from agent.nri.enforcement import Enforcement
from agent.nri.memory_limits import Limited, LimitError, MemoryLimits, cgroup_of
from agent.nri.messages_pb2 import (
    CdiDevice,
    ConfigureRequest,
    ConfigureResponse,
    Container,
    ContainerAdjustment,
    CreateContainerRequest,
    CreateContainerResponse,
    KeyValue,
    Pod,
    Response,
    StartContainerRequest,
    StateChangeEvent,
    SynchronizeRequest,
    SynchronizeResponse,
)
from agent.refusal import Refusal
from agent.report import NodeReport
from allocation import names
from allocation.allocation import Allocation
from allocation.errors import AllocationError
from allocation.isolation import Isolation
from allocation.wire import record
from allocation.wire.environment import NRI_PLUGIN, host_names
from cluster.log_once import LogOnce

log = logging.getLogger(__name__)

_INDEX: Final = "20"
"""The runtime calls plugins in this order; those before may still be changed by ours, those after change ours."""
_CREATE, _START, _STOP, _REMOVE = 4, 6, 10, 11  # events; the runtime says of each end that it is a stop
_RUNNING: Final = 3
_FIRST_PAUSE_SECONDS: Final = 0.1
_LONGEST_PAUSE_SECONDS: Final = 5.0
_MOST_REPORTED: Final = 100
"""Containers without their cards that are named in the log after one connection."""


class Plugin:
    """The agent as a plugin of this node's container runtime.

    Attributes:
        is_registered: whether the runtime asks this plugin for each container now.
    """

    def __init__(
        self,
        socket: Path,
        *,
        enforcement: Enforcement,
        limits: MemoryLimits | None = None,
        on_change: Callable[[], None],
        on_undelivered: Callable[[int], None],
    ) -> None:
        """Use the runtime's `socket`.

        Args:
            socket: where the runtime accepts plugins.
            enforcement: what holds containers to their limits on this node.
            limits: the driver's, if the agent sets them.
            on_change: called when `is_registered` has changed.
            on_undelivered: called with the number of running containers that started without their cards, as of the
                last registration.
        """
        self._socket = socket
        self._enforcement = enforcement
        self._limits = limits
        self._on_change = on_change
        self._on_undelivered = on_undelivered
        self._problems = LogOnce()
        self._pods: dict[str, Pod] = {}
        self._containers: list[Container] = []
        self.is_registered = False

    def set_report(self, _report: NodeReport) -> None:
        """Take the cards of the node, which this plugin does not need: an allocation has their names."""

    async def run(self) -> None:
        """Stay registered until cancelled: register again whenever the runtime closes the connection."""
        pause = _FIRST_PAUSE_SECONDS
        while True:
            try:
                await connection.serve(self._socket, name=NRI_PLUGIN, index=_INDEX, answer=self._answer)
            except (OSError, connection.NriError) as error:
                self._problems.report(str(self._socket), f"the container runtime does not accept the plugin: {error}")
            else:
                log.warning("the container runtime closed the connection of the plugin; connecting again")
            finally:
                was_registered = self.is_registered
                self._set_registered(is_registered=False)
            pause = _FIRST_PAUSE_SECONDS if was_registered else min(2 * pause, _LONGEST_PAUSE_SECONDS)
            await asyncio.sleep(pause)

    def _set_registered(self, *, is_registered: bool) -> None:
        if is_registered != self.is_registered:
            self.is_registered = is_registered
            self._on_change()

    async def _answer(self, method: str, payload: bytes) -> Message:
        match method:
            case "Configure":
                runtime = ConfigureRequest.FromString(payload)
                log.info("plugin of %s %s", runtime.runtime_name, runtime.runtime_version)
                return ConfigureResponse(events=_mask(_CREATE, *((_START, _STOP, _REMOVE) if self._limits else ())))
            case "Synchronize":
                return self._synchronize(SynchronizeRequest.FromString(payload))
            case "CreateContainer":
                return self._create(CreateContainerRequest.FromString(payload))
            case "StartContainer":
                started = StartContainerRequest.FromString(payload)
                await self._start(started.pod, started.container)
            case "StopContainer" | "RemoveContainer":
                self._remove(StartContainerRequest.FromString(payload).container)
            case "StateChange":
                change = StateChangeEvent.FromString(payload)
                if change.event == _START:
                    await self._start(change.pod, change.container)
                elif change.event == _REMOVE:
                    self._remove(change.container)
            case _:
                pass  # such as Shutdown
        return Response()

    def _create(self, request: CreateContainerRequest) -> CreateContainerResponse:
        """Return what is added to a container before it is created.

        Raises:
            Refusal: it must not be created.
        """
        pod, container = request.pod, request.container
        label = f"{pod.namespace}/{pod.name}"
        got = delivered(label, pod.annotations, container.name, container.env)
        if got is None:
            return CreateContainerResponse()
        try:
            additions = self._enforcement.additions(
                got.isolation, container.env, (mount.destination for mount in container.mounts)
            )
        except Refusal as refusal:
            raise Refusal(f"pod {label}: container {container.name}: {refusal}") from None
        cards = host_names(got.shares)
        adjustment = ContainerAdjustment(
            annotations={names.DELIVERED: ",".join(cards)},
            mounts=additions.mounts,
            env=[KeyValue(key=name, value=value) for name, value in additions.variables.items()],
            cdi_devices=[CdiDevice(name=name) for name in cards],
        )
        return CreateContainerResponse(adjust=adjustment)

    async def _start(self, pod: Pod, container: Container) -> None:
        """Limit a container that was created, by the driver.

        Raises:
            Refusal: it must not run.
        """
        if self._limits is None or (limited := _limited(pod, container)) is None:
            return
        try:
            await self._limits.start(container.id, *limited)
        except LimitError as error:
            raise Refusal(f"{limited[0].label}: {error}") from None

    def _remove(self, container: Container) -> None:
        if self._limits is not None:
            self._limits.forget(container.id)

    def _synchronize(self, request: SynchronizeRequest) -> SynchronizeResponse:
        """Take what runs already, of which a large node sends several parts."""
        self._pods |= {pod.id: pod for pod in request.pods}
        self._containers += request.containers
        if not request.more:
            self._report(self._containers)
            self._limit(self._containers)
            self._pods, self._containers = {}, []
            self._problems.report(str(self._socket), "")
            self._set_registered(is_registered=True)
        return SynchronizeResponse(more=request.more)

    def _report(self, containers: Iterable[Container]) -> None:
        """Report the containers that run without the cards that only this plugin gives them."""
        undelivered = [each for each in containers if self._is_undelivered(each)]
        self._on_undelivered(len(undelivered))
        for each in undelivered[:_MOST_REPORTED]:
            pod = self._pods[each.pod_sandbox_id]
            log.error(
                "container %s of pod %s/%s started without its cards, because the plugin was not registered and the"
                " container runtime's validator is off: it has them when it starts again",
                *(each.name, pod.namespace, pod.name),
            )

    def _limit(self, containers: Iterable[Container]) -> None:
        """Limit the containers that run, by the driver, also those that started while the agent was away."""
        if self._limits is None:
            return
        found = {}
        for each in containers:
            pod = self._pods.get(each.pod_sandbox_id)
            if pod is not None and each.state == _RUNNING and (limited := _limited(pod, each)) is not None:
                found[each.id] = limited
        self._limits.running(found)

    def _is_undelivered(self, container: Container) -> bool:
        pod = self._pods.get(container.pod_sandbox_id)
        if pod is None or container.state != _RUNNING or names.DELIVERED in container.annotations:
            return False
        return is_delivered(pod.annotations) and _has_cards(pod, container.name)


def _mask(*events: int) -> int:
    return sum(1 << (event - 1) for event in events)


def _limited(pod: Pod, container: Container) -> tuple[Limited, Allocation] | None:
    """Return a container that the driver has to limit, and the allocation of its pod; None for others."""
    label = f"{pod.namespace}/{pod.name}"
    try:
        got = delivered(label, pod.annotations, container.name, container.env)
        if got is None or got.isolation is not Isolation.CUDA:
            return None
        allocation = record.decode(pod.annotations[names.ALLOCATION])
    except (Refusal, AllocationError):
        return None  # it was refused before it could start
    label = f"pod {label}: container {container.name}"
    return Limited(pod.uid, label, container.name, cgroup_of(container.linux.cgroups_path)), allocation


def _has_cards(pod: Pod, container: str) -> bool:
    try:
        return bool(record.decode(pod.annotations.get(names.ALLOCATION, "")).containers.get(container))
    except AllocationError:
        return False
