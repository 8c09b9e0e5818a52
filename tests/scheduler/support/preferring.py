"""Preferences of pods, random worlds with them, and scores as a list by node."""

from collections.abc import Generator
from typing import Any

import msgspec
import numpy as np

from allocation.steps import finish
from scheduler.filters.node_cache import NodeCache
from scheduler.objects import Node, Pod, Taint
from scheduler.scoring.candidates import NodeList
from tests.scheduler.support.builders import node, pod
from tests.scheduler.support.worlds import World

PREFERRED = "preferredDuringSchedulingIgnoredDuringExecution"
HOST_NAME = "kubernetes.io/hostname"


def labelled(name: str, *, soft: tuple[str, ...] = (), **labels: str) -> Node:
    """Return a node with labels, and with taints of effect PreferNoSchedule that have the keys `soft`."""
    taints = [{"key": key, "effect": "PreferNoSchedule"} for key in soft]
    return node(name, metadata={"name": name, "labels": {HOST_NAME: name, **labels}}, spec={"taints": taints})


def cluster(*nodes: Node, running: tuple[Pod, ...] = (), scores_resources: bool = False) -> NodeCache:
    """Return a node cache of these nodes and pods."""
    made = NodeCache(ours=(), scores_resources=scores_resources)
    for each in nodes:
        made.set_node(each)
    for each in running:
        made.add_pod(each, each.spec.node_name)
    return made


def everywhere(node_cache: NodeCache) -> NodeList:
    """Return all nodes as candidates."""
    return NodeList([*node_cache.nodes.values()])


def listed(steps: Generator[None, None, np.ndarray[Any, Any]]) -> list[int]:
    """Run a preference and return the scores."""
    scores: list[int] = finish(steps).tolist()
    return scores


def near(key: str, *, weight: int = 1, **labels: str) -> dict[str, Any]:
    """Return a preferred term of pod affinity."""
    return {"weight": weight, "podAffinityTerm": {"topologyKey": key, "labelSelector": {"matchLabels": labels}}}


def in_(key: str, *values: str, weight: int = 1) -> dict[str, Any]:
    """Return a preferred term of node affinity."""
    expression = {"key": key, "operator": "In", "values": [*values]}
    return {"weight": weight, "preference": {"matchExpressions": [expression]}}


def anyway(key: str, *, skew: int = 1, labels: dict[str, str] | None = None, **more: Any) -> dict[str, Any]:
    """Return a topology spread constraint that rejects no node."""
    selector = {"matchLabels": labels or {"app": "x"}}
    return {
        "topologyKey": key,
        "maxSkew": skew,
        "whenUnsatisfiable": "ScheduleAnyway",
        "labelSelector": selector,
        **more,
    }


def without_preferences(pending: Pod) -> Pod:
    """Return the same pod without its own preferences."""
    replace, spec = msgspec.structs.replace, pending.spec
    affinity = spec.affinity
    if affinity is not None:
        parts = {
            name: replace(part, preferred=())
            for name in ("node_affinity", "pod_affinity", "pod_anti_affinity")
            if (part := getattr(affinity, name)) is not None
        }
        affinity = replace(affinity, **parts)
    spreads = tuple(each for each in spec.topology_spread_constraints if each.when_unsatisfiable == "DoNotSchedule")
    return replace(pending, spec=replace(spec, affinity=affinity, topology_spread_constraints=spreads))


class PreferringWorld(World):
    """A random world whose pods have preferences and whose nodes have soft taints."""

    def add_node(self, name: str) -> None:
        """Add a node, or change it."""
        super().add_node(name)
        if self.chance.random() < 0.3:
            added = self.state.node_cache.nodes[name]
            taints = (*added.spec.taints, Taint(self.chance.choice("st"), "PreferNoSchedule"))
            changed = msgspec.structs.replace(added, spec=msgspec.structs.replace(added.spec, taints=taints))
            self.state.set_node(changed, added)

    def pod(self, **more: Any) -> Pod:
        """Return a new pod, which mostly has preferences."""
        chance = self.chance
        keys = ("zone", HOST_NAME, "rack")
        affinity: dict[str, Any] = {}
        if chance.random() < 0.4:
            affinity["nodeAffinity"] = {
                PREFERRED: [in_("zone", chance.choice("abc"), weight=chance.randint(1, 100)) for _ in range(2)]
            }
        for kind in ("podAffinity", "podAntiAffinity"):
            if chance.random() < 0.2:
                term = near(chance.choice(keys), weight=chance.randint(1, 100), app=chance.choice("xyz"))
                affinity[kind] = {PREFERRED: [term]}
        if chance.random() < 0.1:
            term = {"topologyKey": "zone", "labelSelector": {"matchLabels": {"app": chance.choice("xy")}}}
            affinity.setdefault("podAffinity", {})["requiredDuringSchedulingIgnoredDuringExecution"] = [term]
        spec: dict[str, Any] = {"affinity": affinity} if affinity else {}
        if chance.random() < 0.3:
            spec["topologySpreadConstraints"] = [
                anyway(chance.choice(keys), skew=chance.randint(1, 3), labels={"app": chance.choice("xyz")})
                for _ in range(chance.randint(1, 2))
            ]
        if chance.random() < 0.2:
            spec["tolerations"] = [{"key": "s", "operator": "Exists"}]
        return super().pod(**{**spec, **more})


def running(name: str, on: str, **more: Any) -> Pod:
    """Return a pod that runs on a node, with the label app=x unless others are given."""
    return pod(name, node=on, phase="Running", **{"labels": {"app": "x"}, **more})
