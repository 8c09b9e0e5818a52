"""No decision breaks a rule between pods, checked by a reading of the rules that shares no code with the scheduler.

The checker below goes over all pods for every node, straight from the manifests.
"""

from typing import Any

import msgspec
from hypothesis import given, settings
from hypothesis import strategies as st

from allocation.steps import finish
from scheduler.cycle.result import Scheduled
from scheduler.objects import Node, Pod
from scheduler.state.cluster_state import ClusterState
from tests.scheduler.support.builders import namespace, state
from tests.scheduler.support.scheduling import schedule

Manifest = dict[str, Any]

NAMESPACES = {"default": {"team": "blue"}, "red": {"team": "red"}, "bare": {}}
KEYS = ("host", "zone")

# ---- clusters ------------------------------------------------------------------------------------------------------

labels = st.fixed_dictionaries({"app": st.sampled_from("wwd")}, optional={"tier": st.sampled_from("fb")})
expressions = st.one_of(
    st.builds(
        lambda key, operator, values: {"key": key, "operator": operator, "values": values},
        st.sampled_from(("app", "tier")),
        st.sampled_from(("In", "NotIn")),
        st.lists(st.sampled_from("wdfb"), min_size=1, max_size=2),
    ),
    st.builds(
        lambda key, operator: {"key": key, "operator": operator},
        st.sampled_from(("app", "tier")),
        st.sampled_from(("Exists", "DoesNotExist")),
    ),
)
label_selectors = st.sampled_from((None, {}, {"matchLabels": {"app": "w"}})) | st.fixed_dictionaries(
    {}, optional={"matchLabels": labels, "matchExpressions": st.lists(expressions, max_size=2)}
)
namespace_selectors = st.none() | st.sampled_from(
    (
        {},
        {"matchLabels": {"team": "red"}},
        {"matchExpressions": [{"key": "team", "operator": "DoesNotExist"}]},
    )
)
terms = st.fixed_dictionaries(
    {
        "topologyKey": st.sampled_from(KEYS),
        "labelSelector": label_selectors,
        "namespaces": st.lists(st.sampled_from(sorted(NAMESPACES)), max_size=1),
        "namespaceSelector": namespace_selectors,
    }
)
constraints = st.fixed_dictionaries(
    {
        "topologyKey": st.sampled_from(KEYS),
        "maxSkew": st.integers(1, 2),
        "whenUnsatisfiable": st.sampled_from(("DoNotSchedule", "DoNotSchedule", "ScheduleAnyway")),
        "labelSelector": label_selectors,
    },
    optional={
        "minDomains": st.integers(1, 4),
        "matchLabelKeys": st.lists(st.sampled_from(("app", "tier")), max_size=1),
        "nodeAffinityPolicy": st.sampled_from(("Honor", "Ignore")),
        "nodeTaintsPolicy": st.sampled_from(("Honor", "Ignore")),
    },
)


def required(items: list[Manifest]) -> Manifest:
    """Return required terms as in a manifest."""
    return {"requiredDuringSchedulingIgnoredDuringExecution": items}


def few(items: st.SearchStrategy[Manifest]) -> st.SearchStrategy[list[Manifest]]:
    """Return lists of at most two elements."""
    return st.lists(items, max_size=2)


nothing: st.SearchStrategy[list[Manifest]] = st.just([])


def pods(
    *,
    near: st.SearchStrategy[list[Manifest]] = nothing,
    far: st.SearchStrategy[list[Manifest]] = nothing,
    spread: st.SearchStrategy[list[Manifest]] = nothing,
) -> st.SearchStrategy[Manifest]:
    """Return pods with such rules."""
    return st.builds(
        lambda own, space, near, far, spread, zone, leaving: {
            "metadata": {
                "namespace": space,
                "labels": own,
                **({"deletionTimestamp": "2026-01-01T00:00:00Z"} if leaving else {}),
            },
            "spec": {
                "schedulerName": "tranche",
                "containers": [{"name": "main"}],
                "affinity": {"podAffinity": required(near), "podAntiAffinity": required(far)},
                "topologySpreadConstraints": spread,
                "nodeSelector": zone,
            },
        },
        labels,
        st.sampled_from(("default", "default", "default", "red", "bare")),
        near,
        far,
        spread,
        st.sampled_from(({}, {}, {}, {"zone": "z0"})),
        st.sampled_from((False, False, False, True)),
    )


shy, social, even = pods(far=few(terms)), pods(near=few(terms)), pods(spread=few(constraints))
mixed = pods(near=few(terms), far=few(terms), spread=few(constraints))
nodes = st.lists(
    st.builds(
        lambda own, tainted: {
            "metadata": {"labels": own},
            "spec": {"taints": [{"key": "k", "effect": "NoSchedule"}] if tainted else []},
            "status": {"allocatable": {"pods": "110"}},
        },
        st.fixed_dictionaries({}, optional={"zone": st.sampled_from(("z0", "z1"))}),
        st.sampled_from((False, False, False, True)),
    ),
    min_size=1,
    max_size=5,
)

# ---- the checker ---------------------------------------------------------------------------------------------------


def selects(selector: Manifest | None, own: dict[str, str]) -> bool:
    """Whether a label selector matches these labels."""
    if selector is None:
        return False
    if any(own.get(key) != value for key, value in selector.get("matchLabels", {}).items()):
        return False
    for each in selector.get("matchExpressions", []):
        has, among = each["key"] in own, own.get(each["key"]) in each.get("values", [])
        holds = {"In": has and among, "NotIn": not has or not among, "Exists": has, "DoesNotExist": not has}
        if not holds[each["operator"]]:
            return False
    return True


def means(term: Manifest, owner: Manifest, other: Manifest) -> bool:
    """Whether a term of `owner` matches the pod `other`."""
    space = other["metadata"]["namespace"]
    if not term["namespaces"] and term["namespaceSelector"] is None:
        covered = space == owner["metadata"]["namespace"]
    else:
        covered = space in term["namespaces"] or selects(term["namespaceSelector"], NAMESPACES[space])
    return covered and selects(term["labelSelector"], other["metadata"]["labels"])


def terms_of(one: Manifest, kind: str) -> list[Manifest]:
    """Return a pod's required terms."""
    found: list[Manifest] = one["spec"]["affinity"][kind]["requiredDuringSchedulingIgnoredDuringExecution"]
    return found


def together(key: str, left: Manifest, right: Manifest) -> bool:
    """Whether two nodes are near each other."""
    here = left["metadata"]["labels"].get(key)
    return here is not None and here == right["metadata"]["labels"].get(key)


def is_apart(one: Manifest, host: Manifest, placed: list[tuple[Manifest, Manifest]]) -> bool:
    """Whether the pod on this node breaks no anti-affinity, its own or another pod's."""
    for other, where in placed:
        if any(
            means(t, one, other) and together(t["topologyKey"], host, where) for t in terms_of(one, "podAntiAffinity")
        ):
            return False
        if any(
            means(t, other, one) and together(t["topologyKey"], host, where) for t in terms_of(other, "podAntiAffinity")
        ):
            return False
    return True


def is_near(one: Manifest, host: Manifest, placed: list[tuple[Manifest, Manifest]]) -> bool:
    """Whether the pod's affinity holds there, or no pod matches it yet except the pod itself."""
    wanted = terms_of(one, "podAffinity")
    if any(t["topologyKey"] not in host["metadata"]["labels"] for t in wanted):
        return False
    kin = [where for other, where in placed if all(means(t, one, other) for t in wanted)]
    if all(any(together(t["topologyKey"], host, where) for where in kin) for t in wanted):
        return True
    placeless = all(t["topologyKey"] not in where["metadata"]["labels"] for where in kin for t in wanted)
    return placeless and all(means(t, one, one) for t in wanted)


def is_even(one: Manifest, host: Manifest, placed: list[tuple[Manifest, Manifest]], fleet: list[Manifest]) -> bool:
    """Whether the pod on this node makes no domain exceed the maximum skew."""
    own = one["metadata"]["labels"]
    strict = [each for each in one["spec"]["topologySpreadConstraints"] if each["whenUnsatisfiable"] == "DoNotSchedule"]
    keys = [each["topologyKey"] for each in strict]
    for each in strict:
        key, selector = each["topologyKey"], each["labelSelector"]
        pinned = {name: own[name] for name in each.get("matchLabelKeys", []) if name in own}
        counts: dict[str, int] = {}
        for node in fleet:
            mine = node["metadata"]["labels"]
            selected = all(mine.get(name) == value for name, value in one["spec"]["nodeSelector"].items())
            if each.get("nodeAffinityPolicy", "Honor") == "Honor" and not selected:
                continue
            if each.get("nodeTaintsPolicy", "Ignore") == "Honor" and node["spec"]["taints"]:
                continue
            if not all(name in mine for name in keys):
                continue
            counts.setdefault(mine[key], 0)
            says_nothing = not pinned and not any((selector or {}).values())
            for other, where in placed:
                theirs = other["metadata"]
                is_counted = where is node and theirs["namespace"] == one["metadata"]["namespace"]
                is_kin = selects(selector, theirs["labels"]) and selects({"matchLabels": pinned}, theirs["labels"])
                if is_counted and is_kin and not says_nothing and "deletionTimestamp" not in theirs:
                    counts[mine[key]] += 1
        if key not in host["metadata"]["labels"]:
            return False
        least = min(counts.values()) if counts and len(counts) >= each.get("minDomains", 1) else 0
        after = counts.get(host["metadata"]["labels"][key], 0) + selects(selector, own)
        if after - least > each["maxSkew"]:
            return False
    return True


def takes(one: Manifest, host: Manifest, placed: list[tuple[Manifest, Manifest]], fleet: list[Manifest]) -> bool:
    """Whether the pod may run on the node."""
    mine = host["metadata"]["labels"]
    return (
        not host["spec"]["taints"]
        and all(mine.get(name) == value for name, value in one["spec"]["nodeSelector"].items())
        and is_apart(one, host, placed)
        and is_near(one, host, placed)
        and is_even(one, host, placed, fleet)
    )


# ---- the promise ---------------------------------------------------------------------------------------------------


def known(fleet: list[Manifest]) -> ClusterState:
    """Return a scheduler that knows the namespaces and these nodes, which get their names."""
    made = state()
    for name, own in NAMESPACES.items():
        made.limits.set_namespace(namespace(name, **own))
    for index, node in enumerate(fleet):
        node["metadata"] = {"name": f"n{index}", "labels": {"host": f"n{index}", **node["metadata"]["labels"]}}
        made.set_node(msgspec.convert(node, Node))
    return made


@settings(max_examples=300)
@given(nodes, st.lists(st.tuples(shy | social | mixed, st.integers(0, 5)), max_size=10))
def test_every_decision_keeps_affinity_and_anti_affinity(
    fleet: list[Manifest], story: list[tuple[Manifest, int]]
) -> None:
    """The filter is right about every node at each step, whatever pods run already and whatever have left."""
    tell(fleet, story)


@settings(max_examples=300)
@given(nodes, st.lists(st.tuples(even, st.integers(0, 5)), min_size=2, max_size=10))
def test_every_decision_keeps_the_spread(fleet: list[Manifest], story: list[tuple[Manifest, int]]) -> None:
    """The filter is right about every node at each step, whatever pods run already and whatever have left."""
    tell(fleet, story)


def tell(fleet: list[Manifest], story: list[tuple[Manifest, int]]) -> None:
    """Let pods come one by one: some are bound by `schedule`, some ran before we came; and now and then one goes."""
    made = known(fleet)
    placed: list[tuple[Manifest, Manifest]] = []
    for index, (one, choice) in enumerate(story):
        one["metadata"] = {"name": f"p{index}", "uid": f"uid-{index}", **one["metadata"]}
        arriving = msgspec.convert(one, Pod)
        able = [host["metadata"]["name"] for host in fleet if takes(one, host, placed, fleet)]
        assert finish(made.node_filter.filter(arriving)).fitting == able
        if choice < 4:
            host = fleet[(index + choice) % len(fleet)]["metadata"]["name"]
        else:
            decision = finish(schedule(made, arriving))
            assert isinstance(decision, Scheduled) == bool(able)
            if not isinstance(decision, Scheduled):
                continue
            host = decision.node
            assert host in able
        placed.append((one, next(node for node in fleet if node["metadata"]["name"] == host)))
        made.set_pod(running(one, host), arriving)
        if choice in (0, 5):
            gone, where = placed.pop(0)
            made.drop_pod(running(gone, where["metadata"]["name"]))


def running(one: Manifest, host: str) -> Pod:
    """Return the pod with its node."""
    return msgspec.convert({**one, "spec": {**one["spec"], "nodeName": host}}, Pod)
