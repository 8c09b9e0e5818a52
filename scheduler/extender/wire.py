"""The wire format between kube-scheduler and its extender (k8s.io/kube-scheduler/extender/v1).

The Go types have tags in some releases and none in others, so keys arrive as `nodenames` or as `NodeNames`: they are
read case-insensitively. Responses have `nodenames`, `failedNodes`, …, which every release reads. Nodes are never
decoded entirely, and pods only as far as the evaluation of cards needs it.
"""

from collections.abc import Mapping, Sequence
from typing import Annotated, Any

import msgspec

from allocation.pod import Container
from scheduler import objects


class UnreadableError(Exception):
    """A request body is malformed."""


class PodMeta(msgspec.Struct):
    """The identity, the annotations and the labels of a pod."""

    name: str = ""
    namespace: str = ""
    uid: str = ""
    annotations: dict[str, str] | None = None
    labels: Mapping[str, str] | None = None


class PodSpec(msgspec.Struct, rename="camel"):
    """The containers of a pod, and the labels that it wants of its node."""

    containers: Sequence[Container] = ()
    init_containers: Sequence[Container] = ()
    node_selector: Mapping[str, str] = {}


class Pod(msgspec.Struct, rename="camel"):
    """A pod as kube-scheduler sends it."""

    metadata: PodMeta
    spec: PodSpec
    api_version: str = ""
    kind: str = ""


class NodeMeta(msgspec.Struct):
    """The name and the annotations of a node; each has a name."""

    name: Annotated[str, msgspec.Meta(min_length=1)]
    annotations: dict[str, str] | None = None


class _Node(msgspec.Struct):
    metadata: NodeMeta


class _NodeList(msgspec.Struct):
    items: list[msgspec.Raw] | None = None


class Candidate(msgspec.Struct, frozen=True):
    """A node that was sent as an object: its metadata, and the raw object."""

    metadata: NodeMeta
    raw: msgspec.Raw


class Args(msgspec.Struct, frozen=True):
    """ExtenderArgs: a pod, and nodes as names or, if `names` is None, as objects."""

    pod: Pod
    names: Sequence[str] | None
    nodes: Sequence[Candidate]

    @classmethod
    def of_pod(cls, pod: objects.Pod, names: Sequence[str]) -> "Args":
        """Return what kube-scheduler sends to ask about a pod on the nodes `names`."""
        meta, spec = pod.metadata, pod.spec
        sent = PodMeta(meta.name, meta.namespace, pod.uid, meta.annotations, meta.labels)
        return cls(Pod(sent, PodSpec(spec.containers, spec.init_containers, spec.node_selector)), names, ())


_Name = Annotated[str, msgspec.Meta(pattern=r"\A[a-z0-9][-.a-z0-9]{0,252}\Z")]
"""A name that the API server accepts; any other text could change the path of a request to it."""


class BindingArgs(msgspec.Struct, frozen=True):
    """ExtenderBindingArgs."""

    podname: _Name
    podnamespace: _Name
    poduid: str
    node: str


class _Nodes(msgspec.Struct):
    items: Sequence[msgspec.Raw]
    metadata: dict[str, str] = {}


class FilterResult(msgspec.Struct, omit_defaults=True, rename="camel"):
    """ExtenderFilterResult: `nodenames` or `nodes`, as in the request, and the reason of each node that does not fit.

    No eviction can make the pod fit on `failed_and_unresolvable_nodes`.
    """

    nodenames: Sequence[str] | None = None
    nodes: _Nodes | None = None
    failed_nodes: dict[str, str] = {}
    failed_and_unresolvable_nodes: dict[str, str] = {}
    error: str = ""

    @property
    def has_node(self) -> bool:
        """Whether a node takes the pod."""
        return bool(self.nodenames or (self.nodes and self.nodes.items))

    @property
    def awaits_a_pod(self) -> bool:
        """Whether no node takes the pod, and one would if other pods left it."""
        return not self.has_node and bool(self.failed_nodes)


class HostPriority(msgspec.Struct, gc=False):
    """A node's score, 0 to 10."""

    host: str
    score: int


class BindingResult(msgspec.Struct):
    """ExtenderBindingResult; `error` is empty if the pod is bound."""

    error: str = ""


_keys = msgspec.json.Decoder(dict[str, msgspec.Raw])
_pod = msgspec.json.Decoder(Pod)
_names = msgspec.json.Decoder(list[str] | None)
_node_list = msgspec.json.Decoder(_NodeList | None)
_node = msgspec.json.Decoder(_Node)
_encoder = msgspec.json.Encoder()
BAD = (msgspec.DecodeError, UnicodeDecodeError, RecursionError)
"""The errors of msgspec for arbitrary bytes."""


def decode_pod(sent: msgspec.Raw) -> Pod:
    """Read the pod of a request; raises one of `BAD`.

    Raises:
        UnreadableError: it is another object.
    """
    pod = _pod.decode(sent)
    if pod.api_version not in ("", "v1") or pod.kind not in ("", "Pod"):
        raise UnreadableError(f"the pod is a {pod.kind or 'Pod'} of {pod.api_version}, expected a Pod of v1")
    return pod


def decode_args(body: bytes) -> Args:
    """Read ExtenderArgs.

    Raises:
        UnreadableError: the body is malformed.
    """
    try:
        parts = decode_keys(body)
        if "pod" not in parts:
            raise UnreadableError("the body is not an ExtenderArgs: it has no pod")
        pod = decode_pod(parts["pod"])
        names = _names.decode(parts["nodenames"]) if "nodenames" in parts else None
        listed = _node_list.decode(parts["nodes"]) if names is None and "nodes" in parts else None
        nodes = [Candidate(_node.decode(raw).metadata, raw) for raw in (listed.items or () if listed else ())]
    except BAD as error:
        raise UnreadableError(f"the body is not an ExtenderArgs: {error}") from None
    if names is None and listed is None:
        raise UnreadableError("the body is not an ExtenderArgs: it has neither nodenames nor nodes")
    return Args(pod, names, nodes)


def decode_keys(body: bytes | msgspec.Raw) -> dict[str, msgspec.Raw]:
    """Return the members of a JSON object by their keys in lower case; raises one of `BAD`."""
    return {key.lower(): value for key, value in _keys.decode(body).items()}


def decode_binding(body: bytes) -> BindingArgs:
    """Read ExtenderBindingArgs.

    Raises:
        UnreadableError: the body is malformed.
    """
    try:
        parts: dict[str, Any] = msgspec.json.decode(body, type=dict[str, Any])
        return msgspec.convert({key.lower(): value for key, value in parts.items()}, BindingArgs)
    except BAD as error:
        raise UnreadableError(f"the body is not an ExtenderBindingArgs: {error}") from None


def nodes_result(nodes: Sequence[Candidate]) -> _Nodes:
    """Return nodes as they were sent."""
    return _Nodes([node.raw for node in nodes])


def encode(result: msgspec.Struct | Sequence[HostPriority]) -> bytes:
    """Return a result as JSON."""
    return _encoder.encode(result)
