"""What a pod requires, and what its quotas still allow it: a list of rules, of which the first refusal counts.

These are kube-scheduler's PreFilter: what keeps a pod from every node, whatever the nodes have.
"""

from collections.abc import Callable, Collection, Iterable, Mapping
from functools import partial
from typing import Protocol, cast

import msgspec

from allocation import burst, precedence
from allocation.bindings.bound_cards import consume_policy
from allocation.claim import ClaimSpec
from allocation.errors import AllocationError
from allocation.fairness.queue_spec import QueueKey
from allocation.gang import MOST_MEMBERS, Declaration, declared
from allocation.ledger.ledger import Ledger
from allocation.names import CLAIM, GANG_MIN_MEMBERS, LIMITS
from allocation.precedence import Decision
from allocation.quota import NO_BURST, Burst, Headroom
from allocation.reasons import PodReason
from allocation.request import read_request
from allocation.settings import AllocationSettings
from scheduler import gpu_requirements
from scheduler.bindings.allowed_cards import within_quotas
from scheduler.bindings.app_bindings import AppBindings
from scheduler.claims.claims import Claims
from scheduler.fairness.fair_share import FairShare
from scheduler.filters import unsupported_fields
from scheduler.gangs.gang import GangKey
from scheduler.gangs.gangs import Gangs
from scheduler.gangs.pod_groups import PodGroups
from scheduler.gpu_requirements import GpuRequirements, PodSpec, WaitingPodError
from scheduler.objects import Pod
from scheduler.state.quotas import Quotas
from scheduler.volumes.planned_pod import PlannedPod


class _Metadata(Protocol):
    @property
    def annotations(self) -> Mapping[str, str] | None: ...

    @property
    def labels(self) -> Mapping[str, str] | None: ...

    @property
    def namespace(self) -> str: ...

    @property
    def uid(self) -> str: ...


class RequestingPod(Protocol):
    """A pod as the API server has it, or as kube-scheduler sends it."""

    @property
    def metadata(self) -> _Metadata:
        """Its names, labels and annotations."""

    @property
    def spec(self) -> PodSpec:
        """Its containers, and the labels of its node."""


class _Asked(msgspec.Struct, frozen=True):
    """A pod whose requirements are read; the pods `without` are taken to hold no cards of its application."""

    pod: RequestingPod
    namespace: str
    key: QueueKey
    labels: Mapping[str, str]
    annotations: Mapping[str, str]
    without: Collection[str]


_Rule = Callable[[_Asked, GpuRequirements | None], GpuRequirements | None]
"""Returns the requirements of a pod in place of those so far, or None to leave them; refuses the pod by an error."""


class Requirements:
    """Reads the requirements of pods by the claims, bindings, queues and quotas of the moment."""

    def __init__(
        self,
        settings: AllocationSettings,
        *,
        ledger: Ledger,
        gangs: Gangs,
        pod_groups: PodGroups,
        claims: Claims,
        bindings: AppBindings,
        quotas: Quotas,
        fair_share: FairShare,
    ) -> None:
        """Read resources and annotations by `settings`; percentages of memory are those of cards in `ledger`."""
        self._settings = settings
        self._ledger = ledger
        self._gangs = gangs
        self._pod_groups = pod_groups
        self._claims = claims
        self._bindings = bindings
        self._quotas = quotas
        self._fair_share = fair_share
        # In this order, and the first refusal counts; True for the rules that limit how many pods may have a node.
        self._rules: tuple[tuple[_Rule, bool], ...] = (
            (self._check_queue, False),
            (self._check_instances, True),
            (self._read, False),
            (self._choose_cards, False),
            (self._gather, False),
            (self._check_pods, True),
        )

    def unsupported(self, pod: Pod) -> str:
        """Return a field of a pod that the loop does not evaluate, or an empty string."""
        return unsupported_fields.unsupported(pod.spec, reads_pod_groups=self._gangs.reads_scheduling_group)

    def of(self, pod: RequestingPod, *, without: Collection[str] = ()) -> GpuRequirements:
        """Return the GPU requirements of a pod.

        The pods `without`, given by UID, are taken to hold no cards that are bound to the pod's application.

        Raises:
            WaitingPodError: its GpuQueue takes no pod now, its namespace has as many as a GpuQuota allows, its GpuClaim
                or PodGroup does not exist, or no GPUBinding gives its application a card.
            AllocationError: a resource or an annotation is malformed or exceeds a limit, or contradicts the claim.
        """
        return self._apply(pod, without, self._rules)

    def unlimited(self, pod: RequestingPod) -> GpuRequirements:
        """Return the same as `of`, also where there may be no more pods of its queue or namespace now."""
        return self._apply(pod, (), [each for each in self._rules if not each[1]])

    def headroom(self, pod: RequestingPod, *, without: Collection[str] = (), others: Burst = NO_BURST) -> Headroom:
        """Return what a pod may still reserve, by the quotas of its namespace and its GpuQueue.

        The pods `without`, given by UID, are taken to hold no cards. Pods that get a node with it may use `others`
        beyond their requests.
        """
        namespace = pod.metadata.namespace
        of_queue = self._fair_share.headroom(self._key(pod), without=without)
        return self._quotas.headroom(namespace, without=without, burst=self.burst(pod) + others).within(of_queue)

    def burst(self, pod: RequestingPod) -> Burst:
        """Return what a pod may use beyond its request; nothing if its annotation cannot be read, which holds it."""
        annotations = pod.metadata.annotations or {}
        if LIMITS not in annotations:
            return NO_BURST
        try:
            request = burst.limited(read_request(pod.spec, self._settings), annotations, self._settings)
        except AllocationError:
            return NO_BURST
        return burst.of_request(request)

    def find_claim(self, name: str, *, namespace: str, planned: Mapping[str, ClaimSpec] = {}) -> ClaimSpec | None:
        """Return the GpuClaim of a pod in `namespace`, or else the one of this name that is `planned` with the pod."""
        return self._claims.find(namespace, name) or planned.get(name)

    def _claim_of(self, asked: _Asked, name: str) -> ClaimSpec | None:
        planned = asked.pod.gpu_claims if isinstance(asked.pod, PlannedPod) else {}
        return self.find_claim(name, namespace=asked.namespace, planned=planned)

    def _key(self, pod: RequestingPod) -> QueueKey:
        return self._fair_share.queues.key(pod.metadata.labels or {}, pod.metadata.namespace)

    # ---- the rules -------------------------------------------------------------------------------------------------

    def _apply(
        self, pod: RequestingPod, without: Collection[str], rules: Iterable[tuple[_Rule, bool]]
    ) -> GpuRequirements:
        meta = pod.metadata
        asked = _Asked(pod, meta.namespace, self._key(pod), meta.labels or {}, meta.annotations or {}, without)
        requirements: GpuRequirements | None = None
        for rule, _ in rules:
            changed = rule(asked, requirements)
            requirements = requirements if changed is None else changed
        return cast("GpuRequirements", requirements)

    def _check_queue(self, asked: _Asked, _: GpuRequirements | None) -> None:
        """Refuse a pod whose queue does not exist, is not for its namespace, or is suspended."""
        self._fair_share.queues.check(asked.key, asked.namespace)

    def _check_instances(self, asked: _Asked, _: GpuRequirements | None) -> None:
        """Refuse a pod whose queue has as many pods as it may."""
        self._fair_share.check_instances(asked.key)

    def _read(self, asked: _Asked, _: GpuRequirements | None) -> GpuRequirements:
        """Read what the pod and its claim request."""
        return gpu_requirements.read(
            asked.pod.spec,
            asked.annotations,
            self._settings,
            find_claim=partial(self._claim_of, asked),
            is_bound=self._bindings.concern(asked.labels, asked.namespace),
        )

    def _choose_cards(self, asked: _Asked, requirements: GpuRequirements | None) -> GpuRequirements | None:
        """Narrow a pod of an application to its cards; refuse more of a card than one pod may have."""
        if not requirements:
            return None
        limits = self._quotas.whole_headroom(asked.namespace).within(self._fair_share.whole_headroom(asked.key)).limits
        may_have = partial(self._quotas.check_single, namespace=asked.namespace, limits=limits)
        decision = self._decide(asked, requirements)
        if decision.granted is not None:
            bound = self._bindings.cards(
                decision.granted,
                policy=consume_policy(asked.labels, asked.annotations),
                other_than={asked.pod.metadata.uid, *asked.without},
                is_instance=decision.is_instance,
            )
            return requirements.on(within_quotas(requirements, bound, self._ledger, may_have))
        may_have(
            requirements.request,
            card_mib=lambda: int(self._ledger.whole_mib.max()),
            is_instance=requirements.constraints.card_kind == "instance" or requirements.fixed is not None,
        )
        return None

    def _decide(self, asked: _Asked, requirements: GpuRequirements) -> Decision:
        """Return which of the sources of a pod decide about its cards; refuse a pod whose sources differ."""
        claimed = requirements.claim
        return precedence.decide(
            requirements.fixed,
            self._bindings.granted(asked.labels, asked.namespace),
            claim=claimed.mark.name if claimed is not None else "",
            devices=claimed.devices if claimed is not None else None,
        )

    def _gather(self, asked: _Asked, requirements: GpuRequirements | None) -> GpuRequirements | None:
        """Mark a pod that gets a node only together with others; refuse one whose gang cannot be read."""
        claim = self._claim_of(asked, asked.annotations[CLAIM]) if CLAIM in asked.annotations else None
        declaration = declared(
            asked.labels,
            asked.annotations,
            gang_ref=claim.gang_ref if claim is not None else "",
            # What kube-scheduler sends has no such field: it evaluates the field itself.
            pod_group=self._gangs.pod_group(asked.pod.spec) if isinstance(asked.pod, Pod) else "",
        )
        gang = self._gangs.of(asked.pod.metadata.uid)
        if declaration is not None and self._pod_groups.are_read:
            self._check_pod_group(asked.namespace, declaration, size=gang.size if gang is not None else 1)
        if requirements is None or gang is None or gang.is_satisfied:
            return None
        return msgspec.structs.replace(requirements, is_gathering=True)

    def _check_pod_group(self, namespace: str, declaration: Declaration, *, size: int) -> None:
        """Refuse a pod whose gang, of this `size` so far, has a PodGroup that does not exist, or asks too much."""
        group = self._pod_groups.get(GangKey(namespace, declaration.name))
        if group is None and declaration.is_pod_group and not declaration.size and size == 1:
            raise WaitingPodError(
                PodReason.PodGroupNotFound,
                f"PodGroup {declaration.name} does not exist: create it in the pod's namespace, or say by annotation"
                f" {GANG_MIN_MEMBERS} how many pods get nodes together",
            )
        if group is not None and group.min_member > MOST_MEMBERS:
            raise AllocationError(
                f"PodGroup {declaration.name} demands {group.min_member} pods: at most {MOST_MEMBERS} pods get nodes"
                " together; lower spec.minMember, or spec.schedulingPolicy.gang.minCount"
            )
        if group is not None and group.parent:
            raise AllocationError(
                f"PodGroup {declaration.name} belongs to CompositePodGroup {group.parent}: groups of groups are"
                " not evaluated; use PodGroups without spec.parentCompositePodGroupName"
            )

    def _check_pods(self, asked: _Asked, requirements: GpuRequirements | None) -> None:
        """Refuse a pod with cards whose namespace has as many of them as it may."""
        if requirements:
            self._quotas.check(asked.namespace)
