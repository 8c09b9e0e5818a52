"""The explanation of a pod, as the HTTP API returns it and the command line shows it."""

from typing import Literal

import msgspec

from allocation.allocation import Exclusivity
from scheduler.api.bindings_types import BindingsExplanation
from scheduler.api.consolidation_types import ConsolidationExplanation
from scheduler.api.gang_types import GangExplanation
from scheduler.api.json_names import json_name
from scheduler.api.preemption_types import PreemptionExplanation
from scheduler.api.queue_types import PodQueue
from scheduler.api.topology_types import TopologyExplanation
from scheduler.queue.entry import QueuePosition


class Amount(msgspec.Struct, frozen=True):
    """The free part and the total of a resource of a card: MiB, millicards (1000 is a whole card), or containers.

    `free` is None for users who have rights in one namespace only.
    """

    free: int | None
    total: int


class CardVerdict(msgspec.Struct, frozen=True, rename=json_name):
    """Whether a card takes one container of the pod.

    Attributes:
        container: the name of the container.
        verdict: `FITS`, or the first test that the card fails.
        score: how full the card would be with the container, 0 to 30; None for users who have rights in one namespace
            only.
        chosen: whether the container would get this card if the pod went to this node.
    """

    container: str
    verdict: str
    score: float | None
    chosen: bool


class CardExplanation(msgspec.Struct, frozen=True, rename=json_name):
    """One card. It has no verdicts if its node as a whole does not take the pod, or if the pod asks for no card.

    `tflops` are in thousandths; the total is 0 if those of the model are not known.
    """

    index: int
    uuid: str
    model: str
    healthy: bool
    cordoned: bool
    memory_mib: Amount
    cores: Amount
    slots: Amount
    verdicts: tuple[CardVerdict, ...]
    tflops: Amount = Amount(None, 0)


class NodeExplanation(msgspec.Struct, frozen=True, rename=json_name, gc=False):
    """One node.

    Attributes:
        name: the name of the node.
        fits: whether the node takes the pod.
        chosen: whether the pod would go to this node.
        reason: why the pod does not fit, as in events; empty if it fits.
        code: the code of the reason if the node as a whole does not take the pod; empty if its cards are the reason,
            see `counts`.
        resolvable: whether pods that finish or are evicted could make the pod fit.
        container: the container that does not fit; empty if the node as a whole does not take the pod.
        counts: the number of cards for each reason; they sum to the cards of the node. Empty if the node as a whole
            does not take the pod.
        score: the score of the node, or if the pod has preferences the total of `scores`; None if the pod does not fit,
            and for users who have rights in one namespace only.
        scores: if the pod has preferences, the scores of the cards and of each preference, 0 to 100, by the names of
            `scheduler.weights`; empty wherever `score` is None.
        cards: the cards in order of position; empty if the fleet is large and `?node=` does not name the node.
        topology: how the set of cards that each container would have compares with the best set of the node, or which
            set the pod waits for; empty if the pod demands nothing of the connections between its cards, and for a
            node without `cards` that is not the chosen one.
    """

    name: str
    fits: bool
    chosen: bool
    reason: str
    code: str
    resolvable: bool
    container: str
    counts: dict[str, int]
    score: float | None
    cards: tuple[CardExplanation, ...]
    scores: dict[str, float] = {}
    topology: tuple[TopologyExplanation, ...] = ()


class ReasonGroup(msgspec.Struct, frozen=True, rename=json_name):
    """The nodes that do not take the pod for the same reason.

    Attributes:
        reason: the reason, as in events.
        resolvable: whether pods that finish or are evicted could make the pod fit on any of the nodes.
        nodes: the names of the nodes.
        code: the code of the reason if the nodes as a whole do not take the pod; empty if their cards are the reason.
    """

    reason: str
    resolvable: bool
    nodes: tuple[str, ...]
    code: str = ""


class Share(msgspec.Struct, frozen=True, rename=json_name):
    """The share of one card that a container has, or would have: MiB and millicards.

    Attributes:
        memory_limit_mib: the most that it may use, if that is more than it has; else 0. The same of `cores_limit`.
    """

    container: str
    uuid: str
    index: int
    memory_mib: int
    cores: int
    memory_limit_mib: int = 0
    cores_limit: int = 0


class RequestedCards(msgspec.Struct, frozen=True, rename=json_name):
    """The cards that a container asks for, with the memory and compute of each.

    Attributes:
        container: the name of the container; for a pod with a GpuClaim, whose GPU containers have the same cards, that
            of the first.
        cards: the number of different cards.
        memory_mib: MiB of each card; None if the request is a percentage.
        memory_percent: percent of the memory of each card; 0 if the request is in MiB.
        cores: millicards of each card.
        whole: whether it asks for cards that no other pod uses, as an exclusive GpuClaim does.
        tflops: thousandths of TFLOPs of each card; 0 if it does not ask for TFLOPs.
        memory_limit_mib: the most of each card that it may use, if that is more than it asks for; else 0. The same of
            `cores_limit`.
    """

    container: str
    cards: int
    memory_mib: int | None
    memory_percent: int
    cores: int
    whole: bool = False
    tflops: int = 0
    memory_limit_mib: int = 0
    cores_limit: int = 0


class GpuClaimExplanation(msgspec.Struct, frozen=True, rename=json_name):
    """The GpuClaim of a pod, whose GPU containers have the same cards.

    Attributes:
        name: the name of the claim, which is in the namespace of the pod.
        exclusivity: `Exclusive`, the pod has its cards alone; `Shared`, other pods use them, too; `MIG`, it has MIG
            instances; None if nothing says, because the claim does not exist and the pod has no cards.
        exists: whether the claim exists; a simulation may create it together with the pod. A pod keeps its cards if its
            claim is deleted.
        profile: of the MIG instances that it accepts; empty if it accepts all.
    """

    name: str
    exclusivity: Exclusivity | None = None
    exists: bool = False
    profile: str = ""


class Policy(msgspec.Struct, frozen=True, rename=json_name):
    """The rules by which a node and its cards are chosen, as texts."""

    nodes: str
    cards: str


ClaimState = Literal["bound", "unbound", "provisioning", "waiting", "missing", "deleting", "lost", "foreign"]


class ClaimExplanation(msgspec.Struct, frozen=True, rename=json_name):
    """A PersistentVolumeClaim of a pod that has no node yet.

    Attributes:
        name: the name of the claim.
        state: `bound`, it has a PersistentVolume; `unbound`, it gets one when the pod is scheduled (its class has
            WaitForFirstConsumer); `provisioning`, one is being provisioned for the node in `usableOn`. The pod waits
            for a claim in one of the other states: `waiting`, it is bound whatever the pod is (its class has Immediate,
            or does not exist); `missing`, it does not exist; `deleting`, it is being deleted; `lost`, its
            PersistentVolume is gone; `foreign`, it has the name of an ephemeral volume of the pod, but another owner.
        storage_class: the name of its class, or empty.
        volume: the PersistentVolume that it has, or, if the pod fits, that an unbound claim would get; empty without
            one, and for unbound claims for users who have rights in one namespace only.
        usable_on: the labels of the nodes that can use the volume, or the name of the node that the pod or the claim
            has been given; empty if every node can use it, or nothing is known.
        exists: whether the claim exists; otherwise it would be created together with the pod.
    """

    name: str
    state: ClaimState
    storage_class: str = ""
    volume: str = ""
    usable_on: str = ""
    exists: bool = False


class Explanation(msgspec.Struct, frozen=True, rename=json_name):
    """Why a pod runs on its node, or is pending.

    Attributes:
        namespace: the namespace of the pod.
        pod: the name of the pod.
        outcome: `fits`, the pod would be scheduled now; `waits`, no node takes it now; `held`, only a change of its
            spec helps; `bound`; `binding`, its Binding is in progress; `finished`; `gated`; `foreign`, another
            scheduler places it.
        answer: the outcome as a sentence.
        note: the message of the event for this decision; empty if the decision has no event.
        node: the node where the pod is or would go.
        shares: the shares of cards that the pod has or would have there.
        asks: the cards that each container asks for; empty if the pod asks for no card, or was scheduled before. If
            `bindings` has cards, they decide what the pod gets of each, and with policy all how many.
        topology: how the set of cards that each container has or would have compares with the best set of the node;
            empty if the pod demands nothing of the connections between its cards.
        quota: the limits of its namespace or GpuQueue that the pod would exceed, with used and requested amounts; empty
            if no node rejects it for a quota.
        claim: the GpuClaim that the pod names; None if it names none.
        bindings: the cards that GPUBindings give to the pod's application; None if GPUBindings do not concern the pod.
        policy: the rules by which node and cards are chosen; None if the pod cannot be read, or was scheduled before.
        resolvable: whether pods that finish or are evicted could make a waiting pod fit.
        nodes: all nodes, by name.
        reasons: the nodes that do not take the pod, by reason, the most frequent reason first.
        claims: the PersistentVolumeClaims of a pod that fits or waits; empty in extender mode.
        hints: remedies for requests that no card meets: an annotation with the models in the cluster, or the largest
            card; and for a missing GpuClaim or GPUBinding, and a GpuQueue that does not take the pod.
        preemption: the pods that it would preempt; None if it does not wait for others to go.
        consolidation: which pods could be moved for it; None if it does not wait for others to go, or preempts some.
        queue: the position in the scheduling queue; None if the pod is not queued, or only the scheduler knows.
        gpu_queue: the queue that is charged for the pod, and the pod's rank; None while the cluster has no GpuQueue,
            and for pods that are finished or of another scheduler.
        resize: of a pod that runs, how far a resize is that takes effect, and why the size that its annotation wishes
            is refused; empty without either.
        gang: the gang of the pod, and whether its pods would get nodes together now; None without a gang. A pod that
            gets a node only together with others fits if all of them do.
    """

    namespace: str
    pod: str
    outcome: Literal["fits", "waits", "held", "bound", "binding", "finished", "gated", "foreign"]
    answer: str
    note: str = ""
    node: str = ""
    shares: tuple[Share, ...] = ()
    asks: tuple[RequestedCards, ...] = ()
    topology: tuple[TopologyExplanation, ...] = ()
    quota: str = ""
    claim: GpuClaimExplanation | None = None
    bindings: BindingsExplanation | None = None
    policy: Policy | None = None
    resolvable: bool = False
    nodes: tuple[NodeExplanation, ...] = ()
    reasons: tuple[ReasonGroup, ...] = ()
    claims: tuple[ClaimExplanation, ...] = ()
    hints: tuple[str, ...] = ()
    preemption: PreemptionExplanation | None = None
    consolidation: ConsolidationExplanation | None = None
    queue: QueuePosition | None = None
    gpu_queue: PodQueue | None = None
    gang: GangExplanation | None = None
    resize: str = ""
