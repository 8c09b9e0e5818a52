"""CPU and memory of pods as preferences count them: a container that requests none counts with a small amount.

Otherwise pods without requests would all go to one node (kube-scheduler, pkg/scheduler/util/pod_resources.go and the
NonZeroRequested of its NodeInfo, v1.34). Only a scheduler that weights CPU and memory keeps these sums.
"""

from typing import Final

from scheduler.filters import resources
from scheduler.objects import Pod

CpuAndMemory = tuple[int, int]
"""Millicores, bytes."""

_DEFAULTS: Final = {resources.CPU: 100, resources.MEMORY: 200 * 1024 * 1024}
_NONE: Final = (0, 0)


class ScoredRequests:
    """The sums of the pods on each node."""

    def __init__(self) -> None:
        self._pods: dict[str, tuple[str, CpuAndMemory]] = {}
        self._sums: dict[str, CpuAndMemory] = {}

    def add(self, pod: Pod, node: str) -> None:
        """Count a pod on `node`."""
        self.remove(pod.uid)
        amounts = of_running(pod)
        self._pods[pod.uid] = (node, amounts)
        self._add(node, amounts, 1)

    def remove(self, uid: str) -> None:
        """Stop counting a pod."""
        node, amounts = self._pods.pop(uid, ("", _NONE))
        if node:
            self._add(node, amounts, -1)

    def on(self, node: str) -> CpuAndMemory:
        """Return the sum of the pods on `node`."""
        return self._sums.get(node, _NONE)

    def _add(self, node: str, amounts: CpuAndMemory, sign: int) -> None:
        cpu, memory = self.on(node)
        self._sums[node] = (cpu + sign * amounts[0], memory + sign * amounts[1])
        if self._sums[node] == _NONE:
            del self._sums[node]


def of_pending(pod: Pod) -> CpuAndMemory:
    """Return what a pod that has no node counts."""
    return _requests(pod, _DEFAULTS)


def of_running(pod: Pod) -> CpuAndMemory:
    """Return what a pod that has a node counts.

    If requests of the pod as a whole are set, only a resource that nothing in the pod requests has a default.
    """
    if pod.spec.resources is None or not pod.spec.resources.requests:
        return _requests(pod, _DEFAULTS)
    requested = resources.requests(pod, ours=())
    return _requests(pod, {name: amount for name, amount in _DEFAULTS.items() if name not in requested})


def _requests(pod: Pod, defaults: dict[str, int]) -> CpuAndMemory:
    amounts = resources.requests(pod, ours=(), defaults=defaults)
    return amounts.get(resources.CPU, 0), amounts.get(resources.MEMORY, 0)
