"""What a pod's spec requires or prefers of its node: selectors, affinity, tolerations and spreading."""

import msgspec

from allocation.label_selector import Expression, LabelSelector


class Term(msgspec.Struct, rename="camel", gc=False):
    """A node selector term: all expressions must hold."""

    match_expressions: tuple[Expression, ...] = ()
    match_fields: tuple[Expression, ...] = ()


class NodeSelector(msgspec.Struct, rename="camel", gc=False):
    """Node selector terms, one of which must hold."""

    node_selector_terms: tuple[Term, ...] = ()


class PreferredTerm(msgspec.Struct, gc=False):
    """A node selector term that adds its weight, 1 to 100, to the score of the nodes that it matches."""

    weight: int = 0
    preference: Term = msgspec.field(default_factory=Term)


class NodeAffinity(msgspec.Struct, gc=False):
    """Node affinity; preferences only order the nodes that fit."""

    required: NodeSelector | None = msgspec.field(default=None, name="requiredDuringSchedulingIgnoredDuringExecution")
    preferred: tuple[PreferredTerm, ...] = msgspec.field(
        default=(), name="preferredDuringSchedulingIgnoredDuringExecution"
    )


class PodAffinityTerm(msgspec.Struct, rename="camel", gc=False):
    """The pods that a pod must be near to, or apart from.

    The API server merged matchLabelKeys and mismatchLabelKeys into the selector when the pod was created.
    """

    topology_key: str = ""
    label_selector: LabelSelector | None = None
    namespaces: tuple[str, ...] = ()
    namespace_selector: LabelSelector | None = None


class WeightedPodAffinityTerm(msgspec.Struct, rename="camel", gc=False):
    """A term that adds its weight, 1 to 100, to the score of the nodes near the pods that it matches."""

    weight: int = 0
    pod_affinity_term: PodAffinityTerm = msgspec.field(default_factory=PodAffinityTerm)


class PodAffinity(msgspec.Struct, gc=False):
    """Inter-pod affinity or anti-affinity; preferences only order the nodes that fit."""

    required: list[PodAffinityTerm] = msgspec.field(
        default_factory=list, name="requiredDuringSchedulingIgnoredDuringExecution"
    )
    preferred: tuple[WeightedPodAffinityTerm, ...] = msgspec.field(
        default=(), name="preferredDuringSchedulingIgnoredDuringExecution"
    )


class Affinity(msgspec.Struct, rename="camel", gc=False):
    """The affinity of a pod to nodes and to other pods."""

    node_affinity: NodeAffinity | None = None
    pod_affinity: PodAffinity | None = None
    pod_anti_affinity: PodAffinity | None = None


class Toleration(msgspec.Struct, frozen=True, gc=False):
    """A toleration of taints."""

    key: str = ""
    operator: str = "Equal"
    value: str = ""
    effect: str = ""


class SpreadConstraint(msgspec.Struct, rename="camel", gc=False):
    """How evenly pods must be spread over the values of a node label."""

    topology_key: str = ""
    max_skew: int = 1
    when_unsatisfiable: str = "DoNotSchedule"
    label_selector: LabelSelector | None = None
    min_domains: int | None = None
    match_label_keys: tuple[str, ...] = ()
    node_affinity_policy: str = "Honor"
    node_taints_policy: str = "Ignore"
