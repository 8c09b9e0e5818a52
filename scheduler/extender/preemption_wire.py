"""The wire format of preemption between kube-scheduler and its extender (k8s.io/kube-scheduler/extender/v1)."""

from collections.abc import Callable

import msgspec

from scheduler.extender import wire
from scheduler.extender.wire import Pod, PodMeta, UnreadableError


class VictimPod(msgspec.Struct, frozen=True, rename={"uid": "UID"}):
    """MetaPod: a pod by its UID."""

    uid: str


class Victims(msgspec.Struct, frozen=True, rename={"pods": "Pods", "pdb_violations": "NumPDBViolations"}):
    """MetaVictims: the pods that would be evicted from a node, and how many PodDisruptionBudgets that would violate."""

    pods: tuple[VictimPod, ...] = ()
    pdb_violations: int = 0


class PreemptionArgs(msgspec.Struct, frozen=True):
    """ExtenderPreemptionArgs: a pod, and the victims on each node that it may take."""

    pod: Pod
    victims: dict[str, Victims]


class PreemptionResult(msgspec.Struct, frozen=True, rename={"victims": "NodeNameToMetaVictims"}):
    """ExtenderPreemptionResult: the nodes that remain, with their victims."""

    victims: dict[str, Victims] = {}


class _Victim(msgspec.Struct):
    metadata: PodMeta


_NULL = msgspec.Raw(b"null")
_by_node = msgspec.json.Decoder(dict[str, msgspec.Raw] | None)
_raws = msgspec.json.Decoder(list[msgspec.Raw] | None)
_victim = msgspec.json.Decoder(_Victim)


def decode(body: bytes) -> PreemptionArgs:
    """Read ExtenderPreemptionArgs, whose victims are pods or, if kube-scheduler is so configured, their UIDs.

    Raises:
        UnreadableError: the body is malformed.
    """
    try:
        parts = wire.decode_keys(body)
        if "pod" not in parts:
            raise UnreadableError("the body is not an ExtenderPreemptionArgs: it has no pod")
        pod = wire.decode_pod(parts["pod"])
        uids = parts.get("nodenametometavictims", _NULL)
        pods = parts.get("nodenametovictims", _NULL)
        victims = {node: _victims(each, _uid) for node, each in (_by_node.decode(uids) or {}).items()}
        victims |= {node: _victims(each, _pod_uid) for node, each in (_by_node.decode(pods) or {}).items()}
    except wire.BAD as error:
        raise UnreadableError(f"the body is not an ExtenderPreemptionArgs: {error}") from None
    return PreemptionArgs(pod, victims)


def _victims(sent: msgspec.Raw, uid: Callable[[msgspec.Raw], str]) -> Victims:
    parts = wire.decode_keys(sent)
    pods = _raws.decode(parts.get("pods", _NULL)) or ()
    violations = msgspec.json.decode(parts.get("numpdbviolations", msgspec.Raw(b"0")), type=int)
    return Victims(tuple(VictimPod(uid(raw)) for raw in pods), violations)


def _uid(raw: msgspec.Raw) -> str:
    """Return the UID of a MetaPod."""
    return msgspec.json.decode(wire.decode_keys(raw).get("uid", msgspec.Raw(b'""')), type=str)


def _pod_uid(raw: msgspec.Raw) -> str:
    """Return the UID of a whole pod."""
    return _victim.decode(raw).metadata.uid
