"""The settings of the scheduler."""

import re
from typing import Final, Literal

import msgspec

from allocation.names import SCHEDULER_NAME, SCHEDULER_NAMES
from cluster.election import ElectionSettings
from scheduler.assignment_settings import AssignmentSettings
from scheduler.expander_settings import ExpanderSettings
from scheduler.observation_settings import DraSettings, MeasurementSettings
from scheduler.serving_settings import NamespaceApiSettings, ServingSettings
from scheduler.ui_settings import UiSettings, is_loopback

NETWORK_LEVELS: Final = ("topology.kubernetes.io/region", "topology.kubernetes.io/zone", "nvidia.com/gpu.clique")
"""The node labels that name network blocks unless others are configured: regions, zones, NVLink domains."""

_LABEL_KEY: Final = re.compile(
    r"([a-z0-9]([-a-z0-9.]{0,251}[a-z0-9])?/)?[A-Za-z0-9]([-A-Za-z0-9_.]{0,61}[A-Za-z0-9])?", re.ASCII
)
"""The key of a label, as Kubernetes permits it."""

_MOST_MOVES = 64
LONGEST_GATHER_SECONDS: Final = 25.0
"""The httpTimeout of kube-scheduler's extender is 30 s, in which the Bindings have to be written, too."""
_MOST_CONCURRENT_PREEMPTIONS: Final = 64
_PRIORITIES: Final = range(-(2**31), 2**31)

MissingDevicesPolicy = Literal["keep", "delete"]
RigidBudgetsPolicy = Literal["keep", "violate"]


class KubeSchedulerSettings(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """The leader election of the kube-schedulers, in extender mode and where pods are handed over.

    Attributes:
        lease_namespace: the namespace of their Lease.
        lease_name: the name of their Lease; empty if a single kube-scheduler runs without leader election.
        identity: the part before `_` of the identity of this replica's kube-scheduler. Empty means the host name, which
            two containers of one pod share.
        silent_seconds: where pods are handed over, for how long their Lease has not been renewed once none of them
            runs. Before that, another one takes over a Lease, after its leaseDuration.
    """

    lease_namespace: str = "kube-system"
    lease_name: str = "kube-scheduler"
    identity: str = ""
    silent_seconds: float = 30.0

    def __post_init__(self) -> None:
        """Refuse a time in which a kube-scheduler that runs may not have renewed the Lease."""
        if self.silent_seconds < 1:
            raise ValueError(f"kube_scheduler.silent_seconds is {self.silent_seconds:g}: it must be at least 1")


class ScoreWeights(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """In loop mode: how much the cards and each preference of a pod count when a node is chosen.

    The node with the highest total of weight x score is chosen among those that take the pod. Each score is 0 to 100,
    and those of preferences are kube-scheduler's, except for network blocks. With the default weights, the best node
    for the cards has 10,000 points and the worst 0, and all of kube-scheduler's preferences together are worth at most
    900: they choose among nodes that are about equally good for the cards, within 9 % of the range between best and
    worst. With `cards: 1` preferences come first: one preference of weight 2 that a node fulfils is worth more than all
    that the cards can differ by.

    Network blocks concern only pods of a gang that has nodes already, and come before everything else by default: the
    blocks nearest to these nodes have 25,000 points and all others at most half, so that no difference of cards and
    preferences (10,900 points) outweighs them.

    Image locality and CPU and memory have weight 0 by default, because no pod asks for them, and because with them
    every decision compares all nodes, also for the many pods that have no preference.

    Attributes:
        cards: the score of the cards (binpack or spread), scaled so that of the nodes that take the pod the best has
            100 and the worst 0; 0 to 10000.
        network_blocks: few network blocks for the pods of a gang, see `network_levels`; 0 to 10000.
        node_affinity: preferred terms of node affinity; 0 to 100, as all of the following.
        taint_toleration: taints with effect PreferNoSchedule that the pod does not tolerate.
        pod_affinity: preferred terms of pod affinity and anti-affinity, those of the pod and those of running pods.
        topology_spread: topology spread constraints with ScheduleAnyway.
        image_locality: images of the pod that a node has already.
        node_resources: free or used CPU and memory, see `node_resources_strategy`.
        node_resources_strategy: LeastAllocated prefers nodes with much free CPU and memory, MostAllocated those with
            little.
        stranded: with node policy `binpack`, in either mode: how many points of the score of the cards, of which a full
            node has 30, each card counts that a pod costs others: that it strands, because the node has no CPU or
            memory left for it, breaks up, or takes from pods that depend on it; 0 to 10000.
    """

    cards: int = 100
    network_blocks: int = 250
    node_affinity: int = 2
    taint_toleration: int = 3
    pod_affinity: int = 2
    topology_spread: int = 2
    image_locality: int = 0
    node_resources: int = 0
    node_resources_strategy: Literal["LeastAllocated", "MostAllocated"] = "LeastAllocated"
    stranded: int = 300

    def __post_init__(self) -> None:
        """Refuse weights out of range."""
        for name, weight in (("cards", self.cards), ("stranded", self.stranded), *self.preferences.items()):
            most = 10_000 if name in ("cards", "stranded", "network_blocks") else 100
            if not 0 <= weight <= most:
                raise ValueError(f"weights.{name} is {weight}: it must be an integer from 0 to {most}")

    @property
    def preferences(self) -> dict[str, int]:
        """The weight of each preference, by name."""
        return {
            "network_blocks": self.network_blocks,
            "node_affinity": self.node_affinity,
            "taint_toleration": self.taint_toleration,
            "pod_affinity": self.pod_affinity,
            "topology_spread": self.topology_spread,
            "image_locality": self.image_locality,
            "node_resources": self.node_resources,
        }


NO_PREFERENCES: Final = ScoreWeights(
    network_blocks=0, node_affinity=0, taint_toleration=0, pod_affinity=0, topology_spread=0
)
"""The weights with which the cards alone decide."""


class PreemptionSettings(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Whether and how the scheduler evicts pods of lower priority for one that fits nowhere.

    Attributes:
        enabled: whether it evicts at all.
        concurrent: for how many pods of a queue at the same time, at most 64.
        nomination_seconds: for how long a pod keeps the cards that were freed for it.
        longest_protection_seconds: the longest time for which a pod can protect itself by annotation.
        highest_priority: the highest priority with which pods outside the system namespaces preempt others; those above
            it preempt none. The default is below the PriorityClasses of the system, which any pod may name.
        rigid_budgets: what becomes of pods whose PodDisruptionBudget never permits a disruption, as with
            `minAvailable: 100%`: `keep` never preempts them, `violate` deletes them as a last resort.
    """

    enabled: bool = True
    concurrent: int = 8
    nomination_seconds: float = 360.0
    longest_protection_seconds: float = 3600.0
    highest_priority: int = 999_999_999
    rigid_budgets: RigidBudgetsPolicy = "keep"

    def __post_init__(self) -> None:
        """Refuse numbers out of range."""
        if not 1 <= self.concurrent <= _MOST_CONCURRENT_PREEMPTIONS:
            raise ValueError(
                f"preemption.concurrent is {self.concurrent}: it must be an integer from 1 to"
                f" {_MOST_CONCURRENT_PREEMPTIONS}"
            )
        if self.nomination_seconds <= 0:
            raise ValueError(f"preemption.nomination_seconds is {self.nomination_seconds:g}: it must be above 0")
        if self.highest_priority not in _PRIORITIES:
            allowed = f"an integer from {_PRIORITIES[0]} to {_PRIORITIES[-1]}"
            raise ValueError(f"preemption.highest_priority is {self.highest_priority}: it must be {allowed}")


class ConsolidationSettings(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Whether and how the scheduler moves pods to other nodes for one that fits nowhere.

    Attributes:
        enabled: whether it does so by itself, while a pod waits that would fit afterwards; `kubectl gpu consolidate`
            works in any case.
        after_seconds: how long a pod waits before others are moved for it.
        highest_priority: the highest priority of pods that are moved; none of a higher one than the waiting pod's is.
        most_moves: how many pods are moved for one, at most 64.
        evictions_per_minute: how fast they are evicted, one after the other.
        replacement_seconds: how long the pod that a controller creates in place of an evicted one has to get a node;
            otherwise no further pod is moved.
    """

    enabled: bool = False
    after_seconds: float = 60.0
    highest_priority: int = 0
    most_moves: int = 8
    evictions_per_minute: float = 6.0
    replacement_seconds: float = 300.0

    def __post_init__(self) -> None:
        """Refuse numbers out of range."""
        if not 1 <= self.most_moves <= _MOST_MOVES:
            raise ValueError(
                f"consolidation.most_moves is {self.most_moves}: it must be an integer from 1 to {_MOST_MOVES}"
            )
        if self.highest_priority not in _PRIORITIES:
            allowed = f"an integer from {_PRIORITIES[0]} to {_PRIORITIES[-1]}"
            raise ValueError(f"consolidation.highest_priority is {self.highest_priority}: it must be {allowed}")
        for name in ("evictions_per_minute", "replacement_seconds"):
            if getattr(self, name) <= 0:
                raise ValueError(f"consolidation.{name} is {getattr(self, name):g}: it must be above 0")


class GangSettings(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """How gangs are scheduled: pods that get nodes together or not at all.

    Attributes:
        backoff_seconds: how long a gang pauses after a Binding was refused, its timeout, or a vain gathering.
        gather_seconds: in extender mode, for how long its pods that came to `/bind` wait for the others.
        pod_groups: whether PodGroups are read, those of Kubernetes and those of the coscheduling plugin.
    """

    backoff_seconds: float = 10.0
    gather_seconds: float = 20.0
    pod_groups: bool = False

    def __post_init__(self) -> None:
        """Refuse numbers out of range."""
        if self.backoff_seconds <= 0:
            raise ValueError(f"gangs.backoff_seconds is {self.backoff_seconds:g}: it must be above 0")
        if not 0 < self.gather_seconds <= LONGEST_GATHER_SECONDS:
            most = f"at most {LONGEST_GATHER_SECONDS:g}, because kube-scheduler's httpTimeout is 30 s"
            raise ValueError(f"gangs.gather_seconds is {self.gather_seconds:g}: it must be above 0, and {most}")


class SchedulerSettings(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """The scheduler's section of the configuration file.

    Attributes:
        extender: whether the process is an extender that kube-scheduler calls, instead of running the scheduling loop.
        host: the address for HTTP: health, metrics, the API and, in extender mode, the verbs.
        port: the port for HTTP.
        probe_host: an additional address for health and metrics without TLS; empty means every address.
        probe_port: the port of that address; 0 disables it.
        serving: TLS, and the callers that may use the API and the verbs.
        namespace_api: the API for users who have rights in one namespace.
        ui: the page that shows people what the scheduler knows.
        kube_scheduler: the leader election of the kube-schedulers that call this process.
        weights: in loop mode, how much the cards and each preference of a pod count when a node is chosen.
        network_levels: in loop mode, the node labels that name network blocks, from the widest level to the narrowest;
            pods of a gang prefer to share them. An empty list disables this.
        aliases: further schedulerNames, in addition to `tranche`, whose pods are scheduled.
        concurrent_binds: how many Bindings the loop writes at the same time.
        request_timeout_seconds: the server-side time limit of a Binding.
        volume_bind_timeout_seconds: how long a pod waits until its claims have volumes; then everything is given back
            and the pod is scheduled again.
        recount_seconds: how often the ledger is compared with a recount. What a pod holds after its end is released;
            another difference ends the leader's term, and the next term counts again.
        relist_seconds: how often all objects are listed again, in addition to the watches.
        first_backoff_seconds: the first pause after a failed Binding, which doubles each time; also the pause before
            the reasons of an unschedulable pod are computed again.
        longest_backoff_seconds: the longest such pause.
        patience_seconds: how long the first pod of a queue waits for other pods to end before cards are held for it;
            0 never holds any. A GpuQueue may set its own.
        hold_idle_seconds: for how long cards are held for such a pod while none of the pods ends that have to.
        mig_request_timeout_seconds: how long an agent has to create a MIG instance, and a card's pause if it fails.
        missing_devices: what becomes of pods whose card their node does not have any more: `keep` records an event,
            `delete` deletes the pod as well, so that its controller creates another one.
        missing_devices_delay_seconds: how long a term waits before it looks for them: drivers may be ready later.
        missing_devices_period_seconds: how often it looks.
        preemption: whether and how pods of lower priority are evicted.
        consolidation: whether and how pods are moved, in loop mode.
        expander: whether and how autoscalers are asked for nodes for pods that fit nowhere.
        gangs: how pods that get nodes together are scheduled.
        resize: whether running pods get the sizes that their users wish by annotation.
        assignments: which indexes and host ports pods get on request.
        dra: what other drivers of dynamic resource allocation do with the cards.
        measurements: what is read about what containers really use.
        election: the leader election of the scheduler's replicas.
        drain_seconds: how long the process waits for Bindings and events in progress before it exits.
    """

    extender: bool = False
    host: str = "127.0.0.1"
    port: int = 8444
    probe_host: str = ""
    probe_port: int = 0
    serving: ServingSettings = ServingSettings()
    namespace_api: NamespaceApiSettings = NamespaceApiSettings()
    ui: UiSettings = UiSettings()
    kube_scheduler: KubeSchedulerSettings = KubeSchedulerSettings()
    weights: ScoreWeights = ScoreWeights()
    network_levels: tuple[str, ...] = NETWORK_LEVELS
    aliases: tuple[str, ...] = ()
    concurrent_binds: int = 64
    request_timeout_seconds: float = 10.0
    volume_bind_timeout_seconds: float = 600.0
    recount_seconds: float = 120.0
    relist_seconds: float = 600.0
    first_backoff_seconds: float = 0.2
    longest_backoff_seconds: float = 5.0
    patience_seconds: float = 300.0
    hold_idle_seconds: float = 900.0
    mig_request_timeout_seconds: float = 120.0
    missing_devices: MissingDevicesPolicy = "keep"
    missing_devices_delay_seconds: float = 300.0
    missing_devices_period_seconds: float = 30.0
    preemption: PreemptionSettings = PreemptionSettings()
    consolidation: ConsolidationSettings = ConsolidationSettings()
    expander: ExpanderSettings = ExpanderSettings()
    gangs: GangSettings = GangSettings()
    resize: bool = False
    assignments: AssignmentSettings = AssignmentSettings()
    dra: DraSettings = DraSettings()
    measurements: MeasurementSettings = MeasurementSettings()
    election: ElectionSettings = ElectionSettings()
    drain_seconds: float = 10.0

    @property
    def scheduler_names(self) -> tuple[str, ...]:
        """The schedulerNames of pods that get their cards here; in extender mode kube-scheduler has one profile."""
        return (SCHEDULER_NAME, *self.aliases) if self.extender else (*SCHEDULER_NAMES, *self.aliases)

    @property
    def moves_pods(self) -> bool:
        """Whether pods can be moved: not without the queue, or without the right to evict."""
        return self.preemption.enabled and not self.extender

    @property
    def is_private(self) -> bool:
        """Whether only processes on this host, or callers authenticated over TLS, can use the API."""
        return is_loopback(self.host) or bool(self.serving.certificate_file and self.serving.knows_callers)

    def __post_init__(self) -> None:
        """Refuse wrong labels, and an extender that is open to other hosts: a caller of `/bind` can allocate cards."""
        _check_network_levels(self.network_levels)
        if self.ui.exposed and not self.namespace_api.port:
            raise ValueError("ui.exposed needs a port with TLS and tokens: set namespace_api.port")
        if self.extender and self.exposure:
            raise ValueError(f"in extender mode {self.exposure}")

    @property
    def exposure(self) -> str:
        """How others could call `/bind` without authentication, and the remedy; empty if they could not."""
        serving = self.serving
        if is_loopback(self.host):
            return ""
        if not serving.certificate_file:
            return (
                f"other hosts can reach host {self.host!r}: set serving.certificate_file and serving.key_file, and the"
                " accepted callers, or set host to 127.0.0.1"
            )
        if not serving.knows_callers:
            return (
                f"other hosts can reach host {self.host!r}, and anybody could call: set serving.client_ca_file,"
                " serving.users or serving.groups, or set host to 127.0.0.1"
            )
        return ""


def _check_network_levels(levels: tuple[str, ...]) -> None:
    for place, level in enumerate(levels):
        if _LABEL_KEY.fullmatch(level) is None:
            raise ValueError(f"network_levels[{place}] is {level!r}: it must be the key of a label")
        if level in levels[:place]:
            raise ValueError(f"network_levels[{place}] is {level!r}, which is in the list already")
