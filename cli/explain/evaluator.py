"""What evaluates pods for `explain` and `simulate`."""

from collections.abc import Sequence
from typing import Any, Protocol

from cli.explain.replicas import Replicas
from cli.liveness.liveness import Liveness
from cli.workloads.claims import gpu_claim, mounted
from cli.workloads.workload import Workload
from scheduler.api.explanation_types import Explanation
from scheduler.api.request_body import Manifests
from scheduler.api.simulation_types import Simulation
from scheduler.objects import Pod

SimulatedWorkload = tuple[Simulation, Replicas]
"""The simulation of a workload's first pod, and a summary of the pods that were evaluated."""


class Evaluator(Protocol):
    """Evaluates pods; the methods raise CommandError on failure."""

    @property
    def alive(self) -> Liveness | None:
        """Which parts of the installation work, or None if the scheduler evaluates pods, which shows that it works."""

    def explain(self, pod: Pod) -> Explanation:
        """Return where an existing pod is or would go, or why it waits."""

    def simulate(self, workload: Workload, *, every: bool, claims: Sequence[dict[str, Any]] = ()) -> SimulatedWorkload:
        """Return what would happen to the first pod of a workload, or to `every` pod.

        The `claims` are created together with it if its pods mount or name them, in addition to its own.
        """


def manifests_of(workload: Workload, number: int, claims: Sequence[dict[str, Any]], *, namespace: str) -> Manifests:
    """Return the pod with a number, and those of its workload's claims and of `claims` that it mounts or names."""
    pod = workload.make(number)
    volume_claims = mounted(pod, (*workload.make_claims(number), *claims), namespace=namespace)
    return Manifests(pod, volume_claims, gpu_claim(pod, claims, namespace=namespace))
