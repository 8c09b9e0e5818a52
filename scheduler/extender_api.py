"""What kube-scheduler and its extender say to each other (k8s.io/kube-scheduler/extender/v1), read and written.

Its Go types have had tags in some releases and none in others, so keys come as `nodenames` or as `NodeNames`: they are
read in any case. Ours are `nodenames`, `failedNodes`, …, which every release reads. Nodes are never decoded whole, and
of a pod only what a decision about cards reads.
"""

from collections.abc import Sequence
from typing import Annotated, Any

import msgspec

from allocation.pod import Container


class UnreadableError(Exception):
    """A body that says nothing that can be answered."""


class PodMeta(msgspec.Struct):
    """Who a pod is."""

    name: str = ""
    namespace: str = ""
    annotations: dict[str, str] | None = None


class PodSpec(msgspec.Struct, rename="camel"):
    """What a pod asks for."""

    containers: list[Container] = []
    init_containers: list[Container] = []


class Pod(msgspec.Struct, rename="camel"):
    """A pod as kube-scheduler sends it."""

    metadata: PodMeta
    spec: PodSpec
    api_version: str = ""
    kind: str = ""


class NodeMeta(msgspec.Struct):
    """Who a node is and what it says of its cards."""

    name: str = ""
    annotations: dict[str, str] | None = None


class _Node(msgspec.Struct):
    metadata: NodeMeta


class _NodeList(msgspec.Struct):
    items: list[msgspec.Raw] | None = None


class Candidate(msgspec.Struct, frozen=True):
    """A node that was sent whole: what is read of it, and all of it as it came."""

    metadata: NodeMeta
    raw: msgspec.Raw


class Args(msgspec.Struct, frozen=True):
    """ExtenderArgs: a pod, and nodes by name or, None there, whole."""

    pod: Pod
    names: Sequence[str] | None
    nodes: Sequence[Candidate]


_Name = Annotated[str, msgspec.Meta(pattern=r"\A[a-z0-9][-.a-z0-9]{0,252}\Z")]
"""As the API server has it; what is no name could become another path there."""


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
    """ExtenderFilterResult: `nodenames` or `nodes`, as was asked, and for each other node why it does not fit.

    No eviction cures what is in `failed_and_unresolvable_nodes`.
    """

    nodenames: Sequence[str] | None = None
    nodes: _Nodes | None = None
    failed_nodes: dict[str, str] = {}
    failed_and_unresolvable_nodes: dict[str, str] = {}
    error: str = ""

    @property
    def awaits_a_pod(self) -> bool:
        """Whether no node takes the pod, and one would if others left it."""
        return not self.nodenames and not (self.nodes and self.nodes.items) and bool(self.failed_nodes)


class HostPriority(msgspec.Struct, gc=False):
    """A node's score, 0 to 10."""

    host: str
    score: int


class BindingResult(msgspec.Struct):
    """ExtenderBindingResult: empty where the pod is bound."""

    error: str = ""


_keys = msgspec.json.Decoder(dict[str, msgspec.Raw])
_pod = msgspec.json.Decoder(Pod)
_names = msgspec.json.Decoder(list[str] | None)
_node_list = msgspec.json.Decoder(_NodeList | None)
_node = msgspec.json.Decoder(_Node)
_encoder = msgspec.json.Encoder()
_BAD = (msgspec.DecodeError, UnicodeDecodeError, RecursionError)


def decode_args(body: bytes) -> Args:
    """Read ExtenderArgs.

    Raises:
        UnreadableError: saying what is wrong with the body.
    """
    try:
        parts = {key.lower(): value for key, value in _keys.decode(body).items()}
        if "pod" not in parts:
            raise UnreadableError("the body is no ExtenderArgs: it holds no pod")
        pod = _pod.decode(parts["pod"])
        names = _names.decode(parts["nodenames"]) if "nodenames" in parts else None
        listed = _node_list.decode(parts["nodes"]) if names is None and "nodes" in parts else None
        nodes = [Candidate(_node.decode(raw).metadata, raw) for raw in (listed.items or () if listed else ())]
    except _BAD as error:
        raise UnreadableError(f"the body is no ExtenderArgs: {error}") from None
    if pod.api_version not in ("", "v1") or pod.kind not in ("", "Pod"):
        raise UnreadableError(f"the pod is a {pod.kind or 'Pod'} of {pod.api_version}, expected a Pod of v1")
    if names is None and listed is None:
        raise UnreadableError("the body is no ExtenderArgs: it holds neither nodenames nor nodes")
    return Args(pod, names, nodes)


def decode_binding(body: bytes) -> BindingArgs:
    """Read ExtenderBindingArgs.

    Raises:
        UnreadableError: saying what is wrong with the body.
    """
    try:
        parts: dict[str, Any] = msgspec.json.decode(body, type=dict[str, Any])
        return msgspec.convert({key.lower(): value for key, value in parts.items()}, BindingArgs)
    except _BAD as error:
        raise UnreadableError(f"the body is no ExtenderBindingArgs: {error}") from None


def nodes_result(nodes: Sequence[Candidate]) -> _Nodes:
    """Answer nodes as they came."""
    return _Nodes([node.raw for node in nodes])


def encode(answer: FilterResult | BindingResult | Sequence[HostPriority]) -> bytes:
    """Answer the JSON of an answer."""
    return _encoder.encode(answer)
