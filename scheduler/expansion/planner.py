"""Decides for which pods that fit nowhere a node is asked for, and which wait for one that is on its way.

Nothing is written here. A pod is tried on the nodes that exist, then on those that are on their way, of which the pods
before it have been promised their part, and then on an empty node of each group.
"""

from collections.abc import Callable, Hashable, Iterable, Sequence
from typing import Final, Literal

import msgspec

from allocation.errors import AllocationError
from allocation.placement.rejection import Rejection
from allocation.quota import UNLIMITED, Headroom
from allocation.reasons import NodeRejection
from allocation.steps import Steps
from scheduler.expander_settings import ExpanderSettings
from scheduler.expansion import template
from scheduler.expansion.backoff import Backoff
from scheduler.expansion.existing_nodes import ExistingNodes
from scheduler.expansion.in_flight import InFlightNodes
from scheduler.expansion.template import HOSTNAME, NodeTemplate
from scheduler.filters import affinity_terms, topology_spread
from scheduler.gpu_requirements import GpuRequirements
from scheduler.objects import Pod
from scheduler.state.cluster_state import ClusterState

SETTLING_SECONDS: Final = 30.0
"""For how long pods have to get their places on a node that has come, before it counts as one that did not help."""
_MOST_REASONS: Final = 3

Verdict = Literal["PreScheduled", "Schedulable", "NoGPUNodes", "NonGPUIssue", "Failed", "Skipped"]
"""What becomes of a pod that fits nowhere.

`PreScheduled`: it waits for a node that is on its way; `Schedulable`: it fits on a node that exists; `NoGPUNodes`: no
group has cards that take it; `NonGPUIssue`: the cards of a group do, and the rest of its nodes does not; `Failed`: a
node for such a pod did not come or did not help; `Skipped`: a node is not what it waits for.
"""


class Decision(msgspec.Struct, frozen=True):
    """What becomes of a pod.

    Attributes:
        pod: the pod.
        verdict: what becomes of it.
        note: the same in words.
        node: the name of the node that is to be asked for; empty if none is.
    """

    pod: Pod
    verdict: Verdict
    note: str
    node: str = ""


class _Case(msgspec.Struct, frozen=True):
    """A pod with what it requires; pods of a `shape` are alike."""

    pod: Pod
    shape: Hashable
    requirements: GpuRequirements


class _Arrival(msgspec.Struct, frozen=True):
    """The node that came for a pod, and when."""

    pod: Pod
    node: str
    at: float


class Planner:
    """The plan of one term.

    Attributes:
        in_flight: the nodes that are on their way.
        backoff: the shapes for which no node is asked for now.
        templates: the groups of nodes, by name, as they were when the round began.
        others: how many nodes are on their way of which the group is not known any more.
    """

    def __init__(self, state: ClusterState, settings: ExpanderSettings, *, next_name: Callable[[], str]) -> None:
        """Plan in `state`, which stays as it is; `next_name` names the next node that is asked for."""
        self._state = state
        self._settings = settings
        self._next_name = next_name
        self.in_flight = InFlightNodes(state)
        self.backoff = Backoff(settings.backoff_seconds)
        self.templates: dict[str, NodeTemplate] = {}
        self._arrived: dict[str, _Arrival] = {}
        self.others = 0
        self._offers = InFlightNodes(state)
        self._existing = ExistingNodes(state)
        self._unfit: dict[Hashable, int] = {}
        """How many nodes were on their way when a shape fitted on none of them within a headroom, in this round."""
        self._group_of: dict[Hashable, Decision | NodeTemplate] = {}
        """The group for a shape within a headroom, or why none suffices, in this round."""

    # ---- nodes on their way ----------------------------------------------------------------------------------------

    def arrived(self, name: str, node: str, now: float) -> None:
        """Note which `node` has come in answer to a request; its pods are about to get their places there."""
        for each in self.in_flight.drop(name):
            self._arrived[each.pod.uid] = _Arrival(each.pod, node, now)

    def expired(self, name: str, now: float) -> None:
        """Note that no node has come in answer to a request."""
        minutes = f"{self._settings.node_seconds / 60:g} minutes"
        for shape in {each.shape for each in self.in_flight.drop(name)}:
            self.backoff.failed(shape, f"no node came within {minutes} of the request for one", now)

    def refused(self, name: str, why: str, now: float) -> None:
        """Note that a request could not be written."""
        for shape in {each.shape for each in self.in_flight.drop(name)}:
            self.backoff.failed(shape, f"the request for a node was not created: {why}", now)

    # ---- a round ---------------------------------------------------------------------------------------------------

    def begin(self, still_waits: Callable[[Pod], bool]) -> None:
        """Begin a round; pods that do not wait any more give back what was promised to them."""
        self._unfit, self._group_of = {}, {}
        for uid in [uid for uid, each in self.in_flight.promises.items() if not still_waits(each.pod)]:
            self.in_flight.release(uid)
        self._arrived = {uid: each for uid, each in self._arrived.items() if still_waits(each.pod)}
        self.templates = {each.name: each for each in self._groups()}
        self._offers, self._existing = InFlightNodes(self._state), ExistingNodes(self._state)
        for each in self.templates.values():
            self._offers.add(each.name, each)

    def _groups(self) -> list[NodeTemplate]:
        state, closed = self._state, self._state.closed_nodes.now()
        known = template.of_nodes(
            (node for name, node in state.node_cache.nodes.items() if name not in closed),
            inventory_of=state.ledger.inventory,
            group_labels=self._settings.group_labels,
            daemons_of=self._daemons,
        )
        return known + [
            template.configured(each)
            for each in self._settings.templates
            if not any(each.labels.items() <= group.node.metadata.labels.items() for group in known)
        ]

    def _daemons(self, node: str) -> tuple[Pod, ...]:
        running = (self._state.running.get(uid) for uid in self._state.node_cache.pods_of(node))
        return tuple(
            pod
            for pod in running
            if pod is not None and (owner := pod.metadata.controller) is not None and owner.kind == "DaemonSet"
        )

    def decide(self, pods: Sequence[Pod], now: float) -> Steps[list[Decision]]:
        """Decide about a pod, or about all waiting pods of a gang: a node is asked for if all of them could get one."""
        cases = []
        for pod in pods:
            yield
            case = self._case(pod)
            if isinstance(case, str):
                return [Decision(each, "Skipped", case) for each in pods]
            cases.append(case)
        decisions: list[Decision] = []
        homeless: list[tuple[_Case, NodeTemplate]] = []
        before = frozenset(self.in_flight.promises)
        for case in cases:
            found = yield from self._without_new_node(case, now)
            if isinstance(found, Decision) and found.verdict not in ("PreScheduled", "Schedulable"):
                for pod in pods:
                    if pod.uid not in before:
                        self.in_flight.release(pod.uid)
                return [msgspec.structs.replace(found, pod=each) for each in pods]
            if isinstance(found, Decision):
                decisions.append(found)
            else:
                homeless.append((case, found))
        for case, group in homeless:
            yield
            decisions.append(self._with_new_node(case, group))
        return decisions

    def _case(self, pod: Pod) -> _Case | str:
        """Return what a pod requires, or why a node is not what it waits for."""
        state = self._state
        if pod.excess or state.unsupported(pod):
            return "it is held until it changes"
        try:
            requirements = state.requirements.of(pod)
        except AllocationError as error:
            return str(error)
        gang = state.gangs.of(pod.uid) if requirements.is_gathering else None
        constraints = requirements.constraints
        reasons = (
            (not requirements.request, "it requests no GPU"),
            (state.holds.of(pod.uid) is not None or pod.status.nominated_node_name, "cards are held for it already"),
            (bool(state.instance_requests.of_pod(pod.uid)), "an agent creates its MIG instance"),
            (requirements.fixed is not None, "it has a static allocation"),
            (requirements.bound is not None, "only the cards that are bound to its application count"),
            (constraints.use_uuids is not None, "it accepts only cards that it names"),
            (HOSTNAME in pod.spec.node_selector, "it accepts only a node that it names"),
            (gang is not None and gang.unready, gang.unready if gang is not None else ""),
        )
        why = next((why for is_so, why in reasons if is_so), "")
        if why:
            return why
        shape = (
            state.node_filter.equivalence_class(pod).key,
            requirements.request,
            constraints,
            affinity_terms.affinity(pod),
            affinity_terms.anti_affinity(pod),
            self._depends_on_places(pod),
        )
        return _Case(pod, shape, requirements)

    def _without_new_node(self, case: _Case, now: float) -> Steps[Decision | NodeTemplate]:
        """Return what becomes of a pod if no node is asked for, or the group of which it needs another node."""
        pod, uid = case.pod, case.pod.uid
        promised = self.in_flight.promises.get(uid)
        if promised is not None:
            return Decision(pod, "PreScheduled", self._awaited(promised.node))
        arrival = self._arrived.get(uid)
        if arrival is not None:
            if now - arrival.at < SETTLING_SECONDS:
                return Decision(pod, "PreScheduled", f"node {arrival.node} has come for it")
            del self._arrived[uid]
            self._judge(case, arrival, now)
        headroom = self.in_flight.headroom(pod)
        if headroom is None:
            return Decision(pod, "Skipped", "its quota, or its queue, permits no further pod")
        node = yield from self._existing.take(pod, case.shape, case.requirements, headroom)
        if node:
            return Decision(pod, "Schedulable", "it fits on a node that exists: no node is asked for")
        failure = self.backoff.pausing(case.shape, now)
        if failure is not None:
            minutes = f"{max(1, round((failure.until - now) / 60))} min"
            return Decision(pod, "Failed", f"{failure.why}: no node is asked for such pods for the next {minutes}")
        yield
        node = self._promised(case, headroom)
        if node:
            return Decision(pod, "PreScheduled", self._awaited(node))
        key = case.shape, headroom
        if key not in self._group_of:
            self._group_of[key] = self._group(case, headroom)
        found = self._group_of[key]
        return msgspec.structs.replace(found, pod=pod) if isinstance(found, Decision) else found

    def _with_new_node(self, case: _Case, group: NodeTemplate) -> Decision:
        """Return the decision about a pod that needs another node of a group, which earlier ones may have asked for."""
        pod, limit = case.pod, self._settings.most_nodes
        headroom = self.in_flight.headroom(pod)
        if headroom is None:
            return Decision(pod, "Skipped", "its quota, or its queue, permits no further pod")
        node = self._promised(case, headroom)
        if node:
            return Decision(pod, "PreScheduled", self._awaited(node))
        if len(self.in_flight) + self.others >= limit:
            return Decision(pod, "Skipped", f"{limit} nodes are on their way, as many as expander.most_nodes allows")
        name = self._next_name()
        self.in_flight.add(name, group)
        if not self.in_flight.promise(pod, case.shape, case.requirements, headroom):
            self.in_flight.drop(name)
            return Decision(pod, "Skipped", "its quota permits no further cards")
        return Decision(pod, "PreScheduled", self._awaited(name), name)

    def _promised(self, case: _Case, headroom: Headroom) -> str:
        """Promise a pod to a node that is on its way; return the node, or an empty string if none takes it."""
        key = case.shape, headroom
        if self._unfit.get(key) == len(self.in_flight):
            return ""  # as others of its shape, since which no node was added
        node = self.in_flight.promise(case.pod, case.shape, case.requirements, headroom)
        if not node:
            self._unfit[key] = len(self.in_flight)
        return node

    def _awaited(self, name: str) -> str:
        return f"it waits for a node like those of group {self.in_flight.templates[name].name}, requested by pod {name}"

    def _judge(self, case: _Case, arrival: _Arrival, now: float) -> None:
        """Say whether a node that came takes such a pod when it is empty; if not, it was not what the group promised.

        If it does, others were faster.
        """
        node = self._state.node_cache.nodes.get(arrival.node)
        groups = template.of_nodes(
            [node] if node is not None else [],
            inventory_of=self._state.ledger.inventory,
            group_labels=(),
            daemons_of=self._daemons,
        )
        trial = InFlightNodes(self._state)
        for each in groups:
            trial.add(each.name, each)
        if arrival.node not in self._state.closed_nodes.now():
            evaluated = trial.evaluate(case.pod, case.requirements, UNLIMITED)
            if evaluated.scores:
                self.backoff.succeeded(case.shape)
                return
            reasons = "; ".join(_texts(evaluated.nodes.rejections.values(), evaluated.rejections.values()))
        else:
            reasons = self._state.closed_nodes.now()[arrival.node].public_text
        self.backoff.failed(case.shape, f"node {arrival.node} came and does not take it ({reasons or 'gone'})", now)

    def _group(self, case: _Case, headroom: Headroom) -> Decision | NodeTemplate:
        """Return the smallest group whose nodes take a pod when they are empty, or why none does."""
        pod, requirements = case.pod, case.requirements
        if self._depends_on_places(pod):
            why = "rules about the places of other pods are not evaluated for nodes that do not exist"
            return Decision(pod, "NonGPUIssue", why)
        if not self._offers.templates:
            why = "no group of nodes is known: no node has cards, and expander.templates names no group"
            return Decision(pod, "NoGPUNodes", why)
        fitting = self._offers.evaluate(pod, requirements, headroom).scores
        if fitting:
            return min((self.templates[name] for name in fitting), key=lambda each: each.size)
        evaluated = self._offers.evaluate(pod, requirements, UNLIMITED)
        if evaluated.scores:
            return Decision(pod, "Skipped", "its quota permits no further cards")
        texts = "; ".join(_texts(evaluated.nodes.rejections.values(), evaluated.rejections.values()))
        if self._offers.cards_take(requirements, UNLIMITED):
            return Decision(pod, "NonGPUIssue", f"no group of nodes takes it although there are cards: {texts}")
        return Decision(pod, "NoGPUNodes", f"no group of nodes has cards that take it: {texts}")

    def _depends_on_places(self, pod: Pod) -> bool:
        """Whether a pod has a rule about other pods that an empty node does not satisfy by itself."""
        gang = self._state.gangs.of(pod.uid)
        is_apart = any(each.topology_key != HOSTNAME for each in affinity_terms.anti_affinity(pod))
        near = topology_spread.strict(pod) or affinity_terms.affinity(pod) or (gang is not None and gang.block)
        return bool(near) or is_apart


def _texts(nodes: Iterable[NodeRejection], cards: Iterable[Rejection]) -> list[str]:
    """Return the first different reasons."""
    found = dict.fromkeys([*(each.public_text for each in nodes), *(each.public_text for each in cards)])
    return [*found][:_MOST_REASONS]
