"""Keeps the driver's limits of the containers on this node: set before a container runs, and with each resize.

The driver keeps a limit for as long as the control group exists: a restart of the agent leaves it in force, and the end
of a container ends it. (What may stay of a request: `agent.nvml.memory_limits`.)
"""

import asyncio
import logging
from collections.abc import Callable, Mapping
from typing import Final

import msgspec

from agent import daemon_call, processes
from agent.nvml import memory_limits
from agent.nvml.memory_limits import Limit
from agent.nvml.nvml import NvmlError
from allocation.allocation import Allocation
from cluster.log_once import LogOnce

log = logging.getLogger(__name__)

_PATIENCE_SECONDS: Final = 1.5
"""For the driver, when a container starts: by default the runtime waits 2 s for a plugin before it drops it."""
_RETRY_SECONDS: Final = 5.0

Limits = Mapping[str, Limit]
"""Those of a container, by the UUID of the card."""


class LimitError(Exception):
    """The driver does not limit a container."""


class Limited(msgspec.Struct, frozen=True):
    """A container that the driver limits.

    Attributes:
        pod: the UID of its pod.
        label: namespace and name of the pod, and the name of the container, for messages.
        name: its name in the pod.
        cgroup: the path of its control group in sysfs.
    """

    pod: str
    label: str
    name: str
    cgroup: str


class MemoryLimits:
    """What the driver has been asked for, and what the allocations of running pods say now."""

    def __init__(self, apply: Callable[[str, Limits], None] = memory_limits.apply) -> None:
        """Set limits by `apply`, whose arguments are a control group and its limits."""
        self._apply = apply
        self._containers: dict[str, Limited] = {}
        self._bound: dict[str, Allocation] = {}
        """By the UID of the pod, as the runtime knows it since the pod's sandbox was created."""
        self._present: dict[str, Allocation] = {}
        """By the UID of the pod, as the API server has it now: a resize changes it."""
        self._applied: dict[str, Limits] = {}
        self._one_at_a_time = asyncio.Lock()
        self._changed = asyncio.Event()
        self._problems = LogOnce()

    async def start(self, identity: str, container: Limited, allocation: Allocation) -> None:
        """Limit a container that was created and does not run yet, by its ID in the runtime.

        Raises:
            LimitError: it would run without its limit.
        """
        if not container.cgroup:
            raise LimitError("its control group does not have the name that a kubelet gives")
        self._add(identity, container, allocation)
        try:
            async with asyncio.timeout(_PATIENCE_SECONDS):
                await self._set(identity)
        except TimeoutError:
            raise LimitError(f"the driver has not set the memory limit within {_PATIENCE_SECONDS} s") from None
        except NvmlError as error:
            raise LimitError(f"the driver does not set the memory limit: {error}") from None

    def running(self, containers: Mapping[str, tuple[Limited, Allocation]]) -> None:
        """Take all containers that run, by their IDs, with their allocations as the runtime knows them."""
        for identity in self._containers.keys() - containers.keys():
            self.forget(identity)
        for identity, (container, allocation) in containers.items():
            self._add(identity, container, allocation)

    def _add(self, identity: str, container: Limited, allocation: Allocation) -> None:
        self._containers[identity] = container
        self._bound[container.pod] = allocation
        self._changed.set()

    def forget(self, identity: str) -> None:
        """Forget a container that has ended."""
        self._applied.pop(identity, None)
        container = self._containers.pop(identity, None)
        if container is None:
            return
        self._problems.forget(container.label)
        if all(each.pod != container.pod for each in self._containers.values()):
            self._bound.pop(container.pod, None)

    def allocate(self, pod: str, allocation: Allocation | None) -> None:
        """Take the present allocation of a pod on this node, by its UID; None once the pod is gone."""
        if allocation is None:
            self._present.pop(pod, None)
        else:
            self._present[pod] = allocation
            self._changed.set()

    async def run(self) -> None:
        """Set what has changed until cancelled, and try again where the driver refused."""
        while True:
            pause = None if await self._reconcile() else _RETRY_SECONDS
            try:
                async with asyncio.timeout(pause):
                    await self._changed.wait()
            except TimeoutError:
                continue

    async def _reconcile(self) -> bool:
        """Set each limit that is not in force; return whether all are."""
        self._changed.clear()
        succeeded = True
        for identity, container in list(self._containers.items()):
            problem = ""
            try:
                await self._set(identity)
            except NvmlError as error:
                problem, succeeded = f"its memory limit is not set: {error}", False
            if identity in self._containers:  # it may have ended meanwhile, and with it the problem
                self._problems.report(container.label, problem)
        return succeeded

    async def _set(self, identity: str) -> None:
        """Set the limit of a container unless it is in force; one at a time, so that the last one holds."""
        async with self._one_at_a_time:
            await self._apply_present(identity)

    async def _apply_present(self, identity: str) -> None:
        container = self._containers.get(identity)
        if container is None:
            return
        allocation = self._present.get(container.pod, self._bound[container.pod])
        shares = allocation.containers.get(container.name, ())
        wanted = {share.uuid: Limit(share.memory_mib, share.at_limits().memory_mib) for share in shares}
        if self._applied.get(identity) == wanted:
            return
        set_limits = daemon_call.start(lambda: self._apply(container.cgroup, wanted), name="memory limits")
        await asyncio.wrap_future(set_limits)
        if identity in self._containers:
            self._applied[identity] = wanted
            log.info("%s: the driver limits its memory: %s", container.label, wanted)


def cgroup_of(path: str) -> str:
    """Return the control group of a container in sysfs, by its path as the runtime's specification has it.

    It is a path, or with systemd slice, prefix and ID, joined by colons. Empty if it is not a container of a pod.
    """
    parent, _, rest = path.partition(":")
    if rest:
        prefix, _, identity = rest.partition(":")
        path = f"/{parent}/{prefix}-{identity}.scope"
    found = processes.parse(f"0::{path}")
    return "" if found is None else found.cgroup
