"""Random labels, label selectors and node selectors, as the API server accepts them."""

import random
from collections.abc import Mapping, Sequence
from typing import Any

Manifest = dict[str, Any]

HOSTNAME = "kubernetes.io/hostname"
ZONE = "topology.kubernetes.io/zone"
BETA_ZONE = "failure-domain.beta.kubernetes.io/zone"
REGION = "topology.kubernetes.io/region"
ZONES = ("us-east1-a", "us-east1-b", "us-east1-c")
TOPOLOGY_KEYS = (HOSTNAME, ZONE, ZONE, REGION, "rack")
NAMESPACES = {"default": {"team": "blue"}, "red": {"team": "red", "tier": "test"}, "bare": {}}

_Values = Mapping[str, Sequence[str]]

_POD_LABELS: _Values = {"app": ("web", "db", "train"), "tier": ("front", "back"), "version": ("1", "2")}
_NODE_LABELS: _Values = {"disk": ("ssd", "hdd"), "rack": ("1", "2", "3"), "generation": ("7", "8", "12", "x")}


class Chance(random.Random):
    """A source of random choices."""

    def maybe(self, probability: float) -> bool:
        """Return whether an event of this probability happens."""
        return self.random() < probability

    def some(self, values: Sequence[Any], most: int) -> list[Any]:
        """Return up to `most` of the values, each at most once."""
        return self.sample(values, min(len(values), self.randint(0, most)))


def pod_labels(chance: Chance) -> dict[str, str]:
    """Return the labels of a pod."""
    return {key: chance.choice(values) for key, values in _POD_LABELS.items() if chance.maybe(0.7)}


def node_labels(chance: Chance, name: str) -> dict[str, str]:
    """Return the labels of a node; those of the topology are sometimes missing."""
    labels = {key: chance.choice(values) for key, values in _NODE_LABELS.items() if chance.maybe(0.7)}
    if chance.maybe(0.95):
        labels[HOSTNAME] = name
    if chance.maybe(0.85):
        labels[ZONE] = chance.choice(ZONES)
    if chance.maybe(0.8):
        labels[REGION] = chance.choice(("r", "r", "s"))
    if chance.maybe(0.1):
        labels[BETA_ZONE] = chance.choice(ZONES)
    return labels


def label_selector(chance: Chance, values: _Values = _POD_LABELS) -> Manifest | None:
    """Return a selector of pods, or of objects with other labels, and sometimes None."""
    selector: Manifest = {}
    if chance.maybe(0.05):
        return None
    if chance.maybe(0.7):
        selector["matchLabels"] = {key: chance.choice(values[key]) for key in chance.some(list(values), 1)}
    if chance.maybe(0.3):
        selector["matchExpressions"] = [_expression(chance, values) for _ in range(chance.randint(1, 2))]
    return selector


def namespace_selector(chance: Chance) -> Manifest | None:
    """Return a selector of namespaces, mostly None."""
    if chance.maybe(0.5):
        return None
    if chance.maybe(0.2):
        return {"matchExpressions": [{"key": "team", "operator": "NotIn", "values": ["red"]}]}
    return label_selector(chance, {"team": ("red", "blue"), "tier": ("test",)})


def node_term(chance: Chance, nodes: Sequence[str]) -> Manifest:
    """Return a node selector term, which may be empty."""
    term: Manifest = {}
    if chance.maybe(0.85):
        term["matchExpressions"] = [node_expression(chance) for _ in range(chance.randint(1, 2))]
    if chance.maybe(0.1):
        field = {"key": "metadata.name", "operator": chance.choice(("In", "NotIn")), "values": [chance.choice(nodes)]}
        term["matchFields"] = [field]
    return term


def node_expression(chance: Chance) -> Manifest:
    """Return a requirement for the labels of a node."""
    if chance.maybe(0.15):
        operator = chance.choice(("Gt", "Lt"))
        return {"key": "generation", "operator": operator, "values": [chance.choice(("7", "9", "11"))]}
    return _expression(chance, {**_NODE_LABELS, ZONE: ZONES, REGION: ("r", "s")})


def node_selector(chance: Chance) -> dict[str, str]:
    """Return a nodeSelector of one or two labels."""
    values = {**_NODE_LABELS, ZONE: ZONES}
    return {key: chance.choice(values[key]) for key in chance.sample(list(values), chance.choice((1, 1, 2)))}


def _expression(chance: Chance, values: _Values) -> Manifest:
    key = chance.choice(list(values))
    operator = chance.choice(("In", "In", "NotIn", "Exists", "DoesNotExist"))
    if operator in ("Exists", "DoesNotExist"):
        return {"key": key, "operator": operator}
    count = min(len(values[key]), chance.choice((1, 1, 2)))
    return {"key": key, "operator": operator, "values": chance.sample(values[key], count)}
