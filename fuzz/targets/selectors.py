"""Selectors, affinity, spread constraints and tolerations of any form, matched against nodes and labels."""

import msgspec

from allocation.label_selector import LabelSelector, accepts, label_selector
from scheduler import selectors
from scheduler.objects import Node
from scheduler.pod_spec.spec import PodSpec

_LABELS = {"kubernetes.io/hostname": "n1", "size": "7", "huge": "9" * 63, "empty": "", "minus": "-7"}
_NODE = msgspec.convert(
    {
        "metadata": {"name": "n1", "labels": _LABELS},
        "spec": {"taints": [{"key": "gpu", "effect": "NoSchedule", "value": "yes"}]},
    },
    Node,
)


def try_bytes(data: bytes) -> None:
    """Read `data` as a pod spec and as a label selector, and match both against nodes."""
    try:
        spec = msgspec.json.decode(data, type=PodSpec)
        selector = msgspec.json.decode(data, type=LabelSelector)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        return
    assert not accepts(None, _LABELS)
    assert isinstance(accepts(label_selector(selector), _LABELS), bool)
    assert isinstance(selectors.node_matcher(spec)(_NODE), bool)
    assert selectors.untolerated_taint(spec, _NODE) in (None, *_NODE.spec.taints)
    selectors.tolerates_unschedulable(spec)
