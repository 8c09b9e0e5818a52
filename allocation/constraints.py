"""The constraints that a pod's annotations put on its cards and nodes, by the keys of docs/interfaces.md.

HAMi ignores values that it cannot read. Here an unknown value is an error that names the valid values.
"""

import re
from collections.abc import Mapping
from functools import lru_cache
from typing import Final, Literal, get_args

import msgspec

from allocation import isolation, names
from allocation.errors import invalid_annotation
from allocation.fabric import FabricDemand
from allocation.inventory import CARD_MODES
from allocation.isolation import Isolation
from allocation.node_isolation import UNDIVIDED
from allocation.settings import AllocationSettings, CardPolicy, NodePolicy, Weights
from allocation.topology import annotations as topology_annotations
from allocation.topology.demand import TopologyDemand

CARD_POLICIES: Final[tuple[CardPolicy, ...]] = get_args(CardPolicy)
NODE_POLICIES: Final[tuple[NodePolicy, ...]] = get_args(NodePolicy)
CardKind = Literal["any", "card", "instance"]
_NO_ISOLATION: Final = Isolation.NONE
_TRUE: Final = frozenset({"1", "t", "T", "TRUE", "true", "True"})
_FALSE: Final = frozenset({"0", "f", "F", "FALSE", "false", "False"})
_INSTANCE: Final = " MIG "
"""Separates the model of the card from the profile in the model of a MIG instance."""
_COUNT: Final = re.compile(r"[0-9]{1,9}")


class Constraints(msgspec.Struct, frozen=True, cache_hash=True):
    """Constraints of a whole pod.

    Attributes:
        node_policy: how nodes are ordered.
        card_policies: how the cards of a node are ordered; an earlier policy decides before a later one.
        weights: of slots, cores and memory in the score of a card.
        use_uuids: the cards that the pod may use; None accepts all.
        avoid_uuids: the cards that the pod must not use.
        use_types: lower-case parts of model names, one of which the card's model must contain; None accepts all.
        avoid_types: lower-case parts of model names, none of which the card's model may contain.
        numa_bind: whether all cards of a container must come from one NUMA node.
        modes: text that must contain the card's mode; None accepts all.
        card_kind: whether the pod accepts undivided cards, MIG instances, or both.
        profile: of the MIG instances that the pod accepts; empty accepts all.
        topology: what the pod demands of the connections between the cards of a container; None if nothing.
        fabric: what the pod demands of the node's network and storage; None if nothing.
        isolation: what must be able to enforce its limits on the node.
    """

    node_policy: NodePolicy
    card_policies: tuple[CardPolicy, ...]
    weights: Weights
    use_uuids: frozenset[str] | None = None
    avoid_uuids: frozenset[str] = frozenset()
    use_types: tuple[str, ...] | None = None
    avoid_types: tuple[str, ...] = ()
    numa_bind: bool = False
    modes: str | None = None
    card_kind: CardKind = "any"
    profile: str = ""
    topology: TopologyDemand | None = None
    fabric: FabricDemand | None = None
    isolation: Isolation = Isolation.NONE

    def isolated_by(self, backend: Isolation) -> "Constraints":
        """Return the same constraints of a pod whose limits something must enforce: on the cards that it can limit."""
        if backend is Isolation.NONE:
            return self
        kind: CardKind = "instance" if backend is Isolation.MIG else "card"
        return msgspec.structs.replace(self, isolation=backend, card_kind=kind)

    @property
    def demands_platform(self) -> bool:
        """Whether the pod demands anything of a node other than its cards."""
        return self.fabric is not None or (self.isolation is not _NO_ISOLATION and self.isolation in UNDIVIDED)

    @property
    def idle_only(self) -> bool:
        """Whether the pod accepts only cards that no other container uses."""
        return "mutex" in self.card_policies

    @property
    def chooses_types(self) -> bool:
        """Whether the pod rejects any model, mode or profile."""
        return bool(self.use_types is not None or self.avoid_types or self.modes is not None or self.profile)

    @property
    def chooses_uuids(self) -> bool:
        """Whether the pod rejects any card by its UUID."""
        return self.use_uuids is not None or bool(self.avoid_uuids)

    def accepts_uuid(self, uuid: str, parent: str) -> bool:
        """Whether the pod accepts this card; a MIG instance matches by its own UUID or that of its card, `parent`."""
        if uuid in self.avoid_uuids or (parent and parent in self.avoid_uuids):
            return False
        return self.use_uuids is None or uuid in self.use_uuids or bool(parent and parent in self.use_uuids)

    def accepts_type(self, model: str, mode: str) -> bool:
        """Whether the pod accepts a card of this model in this mode."""
        lower = model.lower()
        if self.use_types is not None and not any(part in lower for part in self.use_types):
            return False
        if any(part in lower for part in self.avoid_types):
            return False
        if self.profile and _INSTANCE in model and not model.endswith(f"{_INSTANCE}{self.profile}"):
            return False
        return self.modes is None or mode in self.modes


def read_constraints(annotations: Mapping[str, str], settings: AllocationSettings) -> Constraints:
    """Return the constraints of a pod with these annotations; the settings are the default for policies and weights.

    Raises:
        InvalidFieldError: one of the annotations has an invalid value.
    """
    if annotations.keys().isdisjoint(names.CONSTRAINT_KEYS):
        return _unconstrained(settings.node_policy, settings.card_policy, settings.weights)
    uses, avoids = _set(annotations.get(names.USE_UUIDS, "")), _set(annotations.get(names.AVOID_UUIDS, ""))
    use_types, avoid_types = _words(annotations, names.USE_TYPES), _words(annotations, names.AVOID_TYPES)
    policies = _card_policies(annotations, settings)
    topology = topology_annotations.read_demand(annotations, accepts_unknown=settings.topology.accepts_unknown)
    return Constraints(
        node_policy=_node_policy(annotations, settings),
        card_policies=policies,
        weights=_weights(annotations, settings),
        use_uuids=uses or None,
        avoid_uuids=avoids,
        use_types=tuple(word.lower() for word in use_types) or None,
        avoid_types=tuple(word.lower() for word in avoid_types),
        numa_bind=_flag(annotations, names.NUMA_BIND),
        modes=_modes(annotations),
        topology=topology or _linked(policies),
    )


@lru_cache(maxsize=8)
def _unconstrained(node_policy: NodePolicy, card_policy: CardPolicy, weights: Weights) -> Constraints:
    """Return the constraints of a pod without any, as most pods are."""
    policies = (card_policy,)
    return Constraints(node_policy, policies, weights, topology=_linked(policies))


def _linked(policies: tuple[CardPolicy, ...]) -> TopologyDemand | None:
    """Return the demand of HAMi's topology-aware, which does not depend on its place among the policies."""
    return TopologyDemand(policy="linked") if "topology-aware" in policies else None


def read_isolation(annotations: Mapping[str, str]) -> Isolation:
    """Return the isolation of a pod, which admission has written into its annotations; `NONE` without one.

    Raises:
        InvalidFieldError: the annotation names no isolation.
    """
    text = annotations.get(names.ISOLATION)
    return Isolation.NONE if text is None else isolation.parse(text, key=names.ISOLATION)


def words(text: str) -> tuple[str, ...]:
    """Split a comma-separated list; spaces around words and empty words are ignored."""
    return tuple(word for part in text.split(",") if (word := part.strip()))


@lru_cache(maxsize=256)
def _set(text: str) -> frozenset[str]:
    """Split a comma-separated list of cards; cached, because the pods of a workload carry the same list."""
    return frozenset(words(text))


def _words(annotations: Mapping[str, str], key: str) -> tuple[str, ...]:
    return words(annotations.get(key, ""))


def _flag(annotations: Mapping[str, str], key: str) -> bool:
    """Read a Go boolean, as HAMi does."""
    text = annotations.get(key, "").strip()
    if text and text not in _TRUE | _FALSE:
        raise invalid_annotation(key, text, expected="it must be true or false", remedy='write "true", or remove it')
    return text in _TRUE


def _modes(annotations: Mapping[str, str]) -> str | None:
    """Return the modes as written: HAMi looks for a card's mode anywhere in the value, whatever separates them."""
    text = annotations.get(names.MODE, "").strip()
    if text and not any(mode in text for mode in CARD_MODES):
        raise invalid_annotation(names.MODE, text, expected=f"it must name one or more of {', '.join(CARD_MODES)}")
    return text or None


def _node_policy(annotations: Mapping[str, str], settings: AllocationSettings) -> NodePolicy:
    text = annotations.get(names.NODE_POLICY, "").strip()
    if not text:
        return settings.node_policy
    for policy in NODE_POLICIES:
        if text == policy:
            return policy
    raise invalid_annotation(names.NODE_POLICY, text, expected=f"it must be one of {', '.join(NODE_POLICIES)}")


def _card_policies(annotations: Mapping[str, str], settings: AllocationSettings) -> tuple[CardPolicy, ...]:
    policies = _words(annotations, names.CARD_POLICY)
    unknown = [word for word in policies if word not in CARD_POLICIES]
    if unknown or len(set(policies)) != len(policies):
        expected = f"it must be one of {', '.join(CARD_POLICIES)}, or several of them in order, each once"
        raise invalid_annotation(names.CARD_POLICY, annotations[names.CARD_POLICY], expected=expected)
    return tuple(policy for word in policies for policy in CARD_POLICIES if policy == word) or (settings.card_policy,)


def _weights(annotations: Mapping[str, str], settings: AllocationSettings) -> Weights:
    text = annotations.get(names.WEIGHTS, "").strip()
    if not text:
        return settings.weights
    weights: dict[str, int] = {}
    for word in text.split(","):
        name, _, value = (part.strip() for part in word.partition("="))
        if name not in Weights.__struct_fields__ or name in weights or not _COUNT.fullmatch(value):
            weights.clear()
            break
        weights[name] = int(value)
    if len(weights) != len(Weights.__struct_fields__) or not any(weights.values()):
        expected = "it must set slot, core and memory, each to a whole number of at most 9 digits and one to at least 1"
        raise invalid_annotation(
            names.WEIGHTS, text, expected=expected, remedy='write for example "slot=1,core=1,memory=3"'
        )
    return Weights(**weights)
