"""Random clusters and pods of every kind that scheduling distinguishes, made from a seed."""

import random
from typing import Any

import msgspec

from allocation.inventory import Card, NodeInventory
from allocation.names import CORDON
from allocation.settings import AllocationSettings
from allocation.steps import finish
from cluster.gpu_node_status import GpuNodeStatus, Spec, status_of
from cluster.informer import ObjectMeta
from cluster.resource_quota import ResourceQuota
from scheduler.binding.binder import allocation_annotations
from scheduler.cycle.result import Scheduled
from scheduler.objects import Pod
from scheduler.state.cluster_state import ClusterState
from tests.allocation.support.mig_cards import instance, mig_card
from tests.scheduler.support.builders import Clock, lease, namespace, node, pod, state
from tests.scheduler.support.scheduling import forget, schedule

MODELS = ("NVIDIA A100-SXM4-40GB", "NVIDIA H100 80GB HBM3", "Tesla T4")
NAMESPACES = ("default", "team")
COUNT, MEMORY, CORES, PERCENTAGE = (f"nvidia.com/{name}" for name in ("gpu", "gpumem", "gpucores", "gpumem-percentage"))


class World:
    """The state of a scheduler after a random history, and new pods to schedule."""

    def __init__(self, seed: int) -> None:
        self.chance = random.Random(seed)  # noqa: S311 -- a test
        self.clock = Clock()
        settings = AllocationSettings(most_pods_per_node=self.chance.choice((None, None, 3)))
        self.state: ClusterState = state(clock=self.clock, scores_resources=True, settings=settings)
        self.serial = 0
        for name in NAMESPACES:
            self.state.limits.set_namespace(namespace(name, **{"gpu.scheduling/injection": "enabled"}))
        for number in range(self.chance.randint(1, 7)):
            self.add_node(f"n{number}")
        if self.chance.random() < 0.4:
            self.state.limits.set_quota(self.quota())
        for _ in range(self.chance.randint(0, 25)):
            self.run(self.pod())
        if self.chance.random() < 0.3:
            self.state.set_pod(self.pod(node="n0", phase="Running"))  # uncounted: it closes its node
        if self.chance.random() < 0.1:
            self.clock.now += 70  # all Leases that are not renewed have expired now
            self.state.set_lease(lease("n0", renewed="2026-01-01T01:00:00Z"))

    def add_node(self, name: str) -> None:
        """Add a node with random labels, taints, resources and cards; some nodes report no cards."""
        chance = self.chance
        taints = [{"key": "gpu", "effect": "NoSchedule"}] if chance.random() < 0.15 else []
        allocatable = {
            "cpu": chance.choice(("2", "4", "8", "64")),
            "memory": chance.choice(("8Gi", "256Gi")),
            "pods": chance.choice(("4", "110", "110")),
        }
        if chance.random() < 0.15:
            allocatable[COUNT] = str(chance.randint(1, 4))
        meta: dict[str, Any] = {"name": name, "labels": {"kubernetes.io/hostname": name, "zone": chance.choice("ab")}}
        if chance.random() < 0.2:
            meta["annotations"] = {CORDON: f"GPU-{name}-0"}
        spec = {"taints": taints, "unschedulable": chance.random() < 0.1}
        self.state.set_node(node(name, metadata=meta, spec=spec, status={"allocatable": allocatable}))
        if chance.random() < 0.9:
            self.state.agent_reports.set(self.status(name))

    def status(self, name: str) -> GpuNodeStatus:
        """Return what an agent reports: shared cards, or cards in MIG mode."""
        chance = self.chance
        cards: list[Card]
        if chance.random() < 0.2:
            cards = [mig_card(0, node=name, by=chance.choice(("agent", "administrator", "plugin")))]
            cards += [instance(0, "1g.5gb", start, node=name) for start in range(chance.randint(0, 3))]
        else:
            cards = [self.card(name, index) for index in range(chance.randint(1, 8))]
        return GpuNodeStatus(ObjectMeta(name=name), status_of(NodeInventory(name, tuple(cards))), Spec(name))

    def card(self, name: str, index: int) -> Card:
        """Return a card of random size and model."""
        return Card(
            f"GPU-{name}-{index}",
            index,
            self.chance.choice((16384, 40960, 81920)),
            slots=self.chance.choice((1, 2, 10)),
            model=self.chance.choice(MODELS),
            numa=index % 2,
            healthy=self.chance.random() < 0.85,
        )

    def quota(self) -> ResourceQuota:
        """Return a quota of namespace team."""
        hard = {"limits.nvidia.com/gpumem": str(self.chance.choice((5000, 50000))), "limits.nvidia.com/gpu": "3"}
        return msgspec.convert({"metadata": {"name": "q", "namespace": "team"}, "spec": {"hard": hard}}, ResourceQuota)

    def pod(self, **more: Any) -> Pod:
        """Return a new pod."""
        chance, self.serial = self.chance, self.serial + 1
        containers = [self.container(f"c{number}") for number in range(chance.choice((1, 1, 1, 1, 2, 3)))]
        spec: dict[str, Any] = {"containers": containers}
        if chance.random() < 0.15:
            spec["initContainers"] = [self.container("i0")]
        if chance.random() < 0.15:
            spec["nodeSelector"] = {"zone": chance.choice("abc")}
        if chance.random() < 0.15:
            spec["tolerations"] = [{"key": "gpu", "operator": "Exists"}]
        if chance.random() < 0.05:
            spec["volumes"] = [{"name": "data", "persistentVolumeClaim": {"claimName": "data"}}]
        if chance.random() < 0.1:
            term = {"topologyKey": "kubernetes.io/hostname", "labelSelector": {"matchLabels": {"app": "x"}}}
            spec["affinity"] = {"podAntiAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": [term]}}
        return pod(
            f"pod-{self.serial}",
            namespace=chance.choice(NAMESPACES),
            annotations=self.annotations(),
            labels={"app": chance.choice("xyz")},
            **{**spec, **more},
        )

    def annotations(self) -> dict[str, str]:
        """Return random constraints of a pod on nodes and cards."""
        chance = self.chance
        known = {
            "hami.io/node-scheduler-policy": ("binpack", "spread"),
            "hami.io/gpu-scheduler-policy": ("binpack", "spread", "numa", "mutex", "topology-aware", "binpack,numa"),
            "nvidia.com/use-gputype": ("A100", "H100,T4"),
            "nvidia.com/nouse-gputype": ("T4",),
            "nvidia.com/nouse-gpuuuid": ("GPU-n0-0,GPU-n1-1",),
            "nvidia.com/numa-bind": ("true",),
        }
        found = {key: chance.choice(values) for key, values in known.items() if chance.random() < 0.12}
        if chance.random() < 0.03:
            found["hami.io/node-scheduler-policy"] = "nonsense"
        return found

    def container(self, name: str) -> dict[str, Any]:
        """Return a container, which may request cards."""
        chance = self.chance
        limits = {"cpu": chance.choice(("100m", "1")), "memory": chance.choice(("100Mi", "3Gi"))}
        if chance.random() < 0.9:
            limits[COUNT] = str(chance.choice((1, 1, 1, 1, 2)))
            match chance.randint(0, 4):
                case 0:
                    limits[PERCENTAGE] = str(chance.choice((10, 50, 100)))
                case 1:
                    pass  # the whole card
                case _:
                    limits[MEMORY] = str(chance.choice((500, 500, 3000, 3000, 20000, 60000)))
            if chance.random() < 0.5:
                limits[CORES] = str(chance.choice((0, 10, 30, 100)))
        if chance.random() < 0.02:
            limits[MEMORY] = "10Gi"
        return {"name": name, "resources": {"limits": limits, "requests": limits}}

    def run(self, pending: Pod) -> None:
        """Schedule a pod, and apply the result to the state as the watch would."""
        self.state.set_pod(pending)
        decision = finish(schedule(self.state, pending))
        if not isinstance(decision, Scheduled):
            self.state.drop_pod(pending)
            return
        if self.chance.random() < 0.1:
            forget(self.state, pending)
            self.state.drop_pod(pending)
            return
        self.state.set_pod(bound(pending, decision), pending)


def bound(pending: Pod, decision: Scheduled) -> Pod:
    """Return a pod as the watch shows it after its Binding."""
    replace = msgspec.structs.replace
    written = allocation_annotations(decision, unix_seconds=0) if decision.allocation is not None else {}
    return Pod(
        replace(pending.metadata, annotations={**pending.metadata.annotations, **written}),
        replace(pending.spec, node_name=decision.node),
        replace(pending.status, phase="Running"),
    )
