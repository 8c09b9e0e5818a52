"""The API server itself enforces the limits of allocation/limits.py; none of our processes runs here."""

from __future__ import annotations

import json
import time
from typing import TYPE_CHECKING, Any

import pytest
import yaml

from allocation import limits, names
from benchmarks.pace import pace
from lab import manifests
from lab.client import client
from tests.policies.support.pods import IMAGE, prepared
from tests.support.refusals import refusal

if TYPE_CHECKING:
    from collections.abc import Callable

    from lab.layout import Layout

pytestmark = pytest.mark.apiserver

LIMIT_S = 20.0
"""At the pace of the machine of docs/performance/results.md; it is beside other tests."""
REQUIRED = "requiredDuringSchedulingIgnoredDuringExecution"
PREFERRED = "preferredDuringSchedulingIgnoredDuringExecution"


def bare(*, containers: int) -> dict[str, Any]:
    """Return a pod of another scheduler without a GPU request."""
    spec = {"containers": [{"name": f"c{number}", "image": IMAGE} for number in range(containers)]}
    return {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "p"}, "spec": spec}


def affinity(kind: str, terms: list[dict[str, Any]]) -> dict[str, Any]:
    """Return an affinity with these required terms."""
    return {kind: {REQUIRED: {"nodeSelectorTerms": terms} if kind == "nodeAffinity" else terms}}


def preferred(kind: str, terms: list[dict[str, Any]]) -> dict[str, Any]:
    """Return an affinity with these preferred terms."""
    field = "preference" if kind == "nodeAffinity" else "podAffinityTerm"
    return {kind: {PREFERRED: [{"weight": 1, field: term} for term in terms]}}


def expressions(values: list[str], *, number: int = 1) -> dict[str, Any]:
    """Return a term of node affinity with `number` expressions, each with these values."""
    return {"matchExpressions": [{"key": f"k{each}", "operator": "In", "values": values} for each in range(number)]}


def selector(values: list[str]) -> dict[str, Any]:
    """Return a selector of labels."""
    return {"matchExpressions": [{"key": "k", "operator": "In", "values": values}]}


def short_values(number: int) -> list[str]:
    """Return `number` different short values."""
    return [f"v{each}" for each in range(number)]


def with_spec(**fields: Any) -> dict[str, Any]:
    """Return a GPU pod with further fields of its spec."""
    pod = prepared()
    pod["spec"] |= fields
    return pod


def with_labels(number: int) -> dict[str, Any]:
    """Return a GPU pod with `number` labels."""
    pod = prepared()
    pod["metadata"]["labels"] = dict.fromkeys(short_values(number), "")
    return pod


def with_ports(number: int) -> dict[str, Any]:
    """Return a GPU pod with `number` host ports, and one container port that is not on the host."""
    pod = prepared(containers=2)
    ports = [{"containerPort": 1000 + each, "hostPort": 1000 + each} for each in range(number)]
    pod["spec"]["containers"][0]["ports"] = ports[:3]
    pod["spec"]["containers"][1]["ports"] = [*ports[3:], {"containerPort": 80}]
    return pod


def with_values(number: int) -> dict[str, Any]:
    """Return a GPU pod with `number` values in selectors of every kind."""
    anti = {"topologyKey": "zone", "namespaces": short_values(2), "labelSelector": {"matchLabels": {"a": "b"}}}
    spread = {"maxSkew": 1, "topologyKey": "zone", "whenUnsatisfiable": "DoNotSchedule"}
    return with_spec(
        affinity={
            **affinity("nodeAffinity", [expressions(short_values(number - 12))]),
            **affinity("podAntiAffinity", [anti]),
        },
        topologySpreadConstraints=[spread | {"labelSelector": selector(short_values(4))}],
    )


def with_characters(number: int) -> dict[str, Any]:
    """Return a GPU pod with `number` characters in keys and values of selectors."""
    terms = [expressions(["v" * 60] * 10, number=24)]
    left = number - sum(len(each["key"]) + 600 for each in terms[0]["matchExpressions"])
    wide = {f"{position:02}": "v" * 59 for position in range(left // 61)}
    wide["k" * (left % 61)] = ""
    return with_spec(affinity=affinity("nodeAffinity", terms), nodeSelector=wide)


def with_resources(number: int) -> dict[str, Any]:
    """Return a GPU pod with `number` entries of resources; in one container requests equal limits."""
    pod = prepared(containers=2)
    given = dict(pod["spec"]["containers"][0]["resources"]["limits"])
    other = {f"example.com/r{each}": "0" for each in range(number - len(given) - 2)}
    pod["spec"]["containers"][0]["resources"]["requests"] = given
    pod["spec"]["containers"][1]["resources"] = {"limits": {**other, "cpu": "2"}, "requests": {**other, "cpu": "2"}}
    pod["spec"]["initContainers"] = [
        {
            **pod["spec"]["containers"][1],
            "name": "first",
            "resources": {"requests": {"cpu": "1"}},
        }
    ]
    return pod


def with_annotations(number: int) -> dict[str, Any]:
    """Return a GPU pod with `number` characters in two of its annotations."""
    pod = with_annotation("nvidia.com/nouse-gpuuuid", 500)
    pod["metadata"]["annotations"]["nvidia.com/use-gpuuuid"] = "x" * (number - 500)
    return pod


def with_annotation(key: str, number: int) -> dict[str, Any]:
    """Return a GPU pod with an annotation of `number` characters."""
    pod = prepared()
    pod["metadata"]["annotations"][key] = "x" * number
    return pod


POD_TERM = {"topologyKey": "zone", "labelSelector": {"matchLabels": {"a": "b"}}}
CASES: dict[str, tuple[int, Callable[[int], dict[str, Any]], str]] = {
    "CONTAINERS": (limits.CONTAINERS, lambda n: by_hand(n, 1), "spec.containers"),
    "GPU_CONTAINERS": (
        limits.GPU_CONTAINERS,
        lambda n: by_hand(n, n),
        "ask for a GPU",
    ),
    "NODE_SELECTOR_LABELS": (
        limits.NODE_SELECTOR_LABELS,
        lambda n: with_spec(nodeSelector=dict.fromkeys(short_values(n), "")),
        "spec.nodeSelector",
    ),
    "NODE_SELECTOR_TERMS": (
        limits.NODE_SELECTOR_TERMS,
        lambda n: with_spec(affinity=affinity("nodeAffinity", [expressions(["v"])] * n)),
        "spec.affinity.nodeAffinity",
    ),
    "PREFERRED_NODE_TERMS": (
        limits.PREFERRED_NODE_TERMS,
        lambda n: with_spec(affinity=preferred("nodeAffinity", [expressions(["v"])] * n)),
        "preferred terms",
    ),
    "NODE_EXPRESSIONS preferred": (
        limits.NODE_EXPRESSIONS,
        lambda n: with_spec(
            affinity={
                "nodeAffinity": {
                    **affinity("nodeAffinity", [expressions(["v"])])["nodeAffinity"],
                    **preferred("nodeAffinity", [expressions(["v"], number=n - 1)])["nodeAffinity"],
                }
            }
        ),
        "spec.affinity.nodeAffinity",
    ),
    "SELECTOR_VALUES preferred": (
        limits.SELECTOR_VALUES,
        lambda n: with_spec(
            affinity=preferred("nodeAffinity", [expressions(short_values(n - 8))])
            | preferred("podAffinity", [POD_TERM])
            | preferred(
                "podAntiAffinity",
                [POD_TERM | {"namespaces": ["a", "b"], "labelSelector": {}}, POD_TERM | {"labelSelector": {}}],
            )
        ),
        "keys and values in all selectors",
    ),
    "NODE_EXPRESSIONS": (
        limits.NODE_EXPRESSIONS,
        lambda n: with_spec(
            affinity=affinity(
                "nodeAffinity",
                [
                    expressions(["v"], number=n - 1),
                    {"matchFields": [{"key": "metadata.name", "operator": "In", "values": ["n"]}]},
                ],
            )
        ),
        "spec.affinity.nodeAffinity",
    ),
    "POD_AFFINITY_TERMS": (
        limits.POD_AFFINITY_TERMS,
        lambda n: with_spec(
            affinity=affinity("podAffinity", [POD_TERM]) | affinity("podAntiAffinity", [POD_TERM] * (n - 1))
        ),
        "spec.affinity.podAffinity and podAntiAffinity",
    ),
    "PREFERRED_POD_TERMS": (
        limits.PREFERRED_POD_TERMS,
        lambda n: with_spec(
            affinity=preferred("podAffinity", [POD_TERM]) | preferred("podAntiAffinity", [POD_TERM] * (n - 1))
        ),
        "preferred terms",
    ),
    "SPREAD_CONSTRAINTS": (
        limits.SPREAD_CONSTRAINTS,
        lambda n: with_spec(
            topologySpreadConstraints=[
                {"maxSkew": 1, "topologyKey": f"z{each}", "whenUnsatisfiable": "DoNotSchedule"} for each in range(n)
            ]
        ),
        "spec.topologySpreadConstraints",
    ),
    "TOLERATIONS": (
        limits.TOLERATIONS,
        # The API server adds two of its own.
        lambda n: with_spec(tolerations=[{"key": f"k{each}", "operator": "Exists"} for each in range(n - 2)]),
        "spec.tolerations",
    ),
    "HOST_PORTS": (limits.HOST_PORTS, with_ports, "host ports"),
    "SELECTOR_VALUES": (limits.SELECTOR_VALUES, with_values, "keys and values in all selectors"),
    "SELECTOR_CHARACTERS": (limits.SELECTOR_CHARACTERS, with_characters, "characters in all keys and values"),
    "RESOURCES": (limits.RESOURCES, with_resources, "entries in resources"),
    "VOLUMES": (
        limits.VOLUMES,
        lambda n: with_spec(
            volumes=[{"name": value, "emptyDir": {}} for value in short_values(n)], automountServiceAccountToken=False
        ),
        "spec.volumes",
    ),
    "LIST_CHARACTERS": (
        limits.LIST_CHARACTERS,
        with_annotations,
        "annotations nvidia.com/use-gpuuuid, nvidia.com/nouse-gpuuuid have",
    ),
    "POD_LABELS": (limits.POD_LABELS, with_labels, "metadata.labels"),
    **{
        f"LIST_CHARACTERS {key}": (
            limits.LIST_CHARACTERS,
            lambda n, key=key: with_annotation(key, n),  # type: ignore[misc]
            f"annotations {key} have",
        )
        for key in sorted(names.CONSTRAINT_KEYS)
    },
}


def by_hand(containers: int, gpu_containers: int) -> dict[str, Any]:
    """Return a pod that a user copied from a prepared one; the webhook would refuse to prepare it."""
    pod = prepared(containers=2)
    asking, other = (json.dumps(each) for each in pod["spec"]["containers"])
    pod["spec"]["containers"] = [
        json.loads(asking.replace("c0", f"c{each}") if each < gpu_containers else other.replace("c1", f"c{each}"))
        for each in range(containers)
    ]
    return pod


@pytest.fixture
def refused(server: Layout, namespace: str) -> Callable[[dict[str, Any]], str]:
    """A function that creates a pod as a dry run and returns the reason why it is refused, or an empty string."""
    return lambda pod: refusal(lambda: client(server).create(pod, namespace=namespace, dry_run=True))


def test_policy_and_code_have_the_same_limits() -> None:
    """The policy has each number of allocation/limits.py, in its comparisons and in its messages."""
    text = (manifests.ROOT / "base" / "policies.yaml").read_text()
    policy, _ = (each for each in yaml.safe_load_all(text) if each["metadata"]["name"] == "tranche-creation")
    expressions_text = " ".join(
        each["expression"]
        for each in policy["spec"]["variables"]
        if each["name"] in ("tooMany", "tooLarge", "constraints")
    )
    for name, number in vars(limits).items():
        if name.isupper():
            assert f" {number}" in expressions_text, name
    assert {case.partition(" ")[0] for case in CASES} == {name for name in vars(limits) if name.isupper()}
    assert [key for key in sorted(names.CONSTRAINT_KEYS) if f"'{key}'" not in expressions_text] == []


@pytest.mark.parametrize("case", CASES)
def test_pod_at_the_limit_is_admitted_and_one_beyond_is_refused(
    refused: Callable[[dict[str, Any]], str], case: str
) -> None:
    """The refusal names the field, what it holds and the limit."""
    limit, make, field = CASES[case]
    assert refused(make(limit)) == ""
    words = refused(make(limit + 1))
    assert field in words
    assert str(limit + 1) in words
    assert f"{limit} is the limit" in words


@pytest.mark.parametrize(
    "make",
    [
        pytest.param(lambda: with_spec(affinity=affinity("nodeAffinity", [expressions(["v"])] * 20_000)), id="terms"),
        pytest.param(
            lambda: with_spec(affinity=affinity("nodeAffinity", [expressions(short_values(100_000))])),
            id="one-expression",
        ),
        pytest.param(lambda: with_spec(affinity=affinity("podAntiAffinity", [POD_TERM] * 10_000)), id="anti-affinity"),
        pytest.param(
            lambda: with_spec(affinity=preferred("nodeAffinity", [expressions(["v"])] * 20_000)), id="preferred-terms"
        ),
        pytest.param(
            lambda: with_spec(affinity=preferred("podAntiAffinity", [POD_TERM] * 10_000)), id="preferred-anti-affinity"
        ),
        pytest.param(
            lambda: with_spec(
                affinity=affinity("podAffinity", [POD_TERM | {"labelSelector": selector(short_values(100_000))}])
            ),
            id="label-selector",
        ),
        pytest.param(
            lambda: with_spec(
                affinity=affinity(
                    "podAffinity",
                    [POD_TERM | {"labelSelector": {"matchExpressions": [{"key": "k", "operator": "Exists"}] * 30_000}}],
                )
            ),
            id="label-expressions",
        ),
        pytest.param(lambda: with_spec(nodeSelector=dict.fromkeys(short_values(80000), "")), id="node-selector"),
        pytest.param(
            lambda: with_spec(tolerations=[{"key": "k", "operator": "Exists", "value": ""}] * 30_000), id="tolerations"
        ),
        pytest.param(lambda: with_labels(80_000), id="labels"),
        pytest.param(lambda: with_ports(20_000), id="ports"),
        pytest.param(lambda: with_annotation("nvidia.com/use-gpuuuid", 250_000), id="list"),
        pytest.param(lambda: many_containers(15_000), id="containers"),
    ],
)
def test_error_for_a_hostile_pod_names_the_limit(
    refused: Callable[[dict[str, Any]], str], make: Callable[[], dict[str, Any]]
) -> None:
    """A megabyte of any field is refused within seconds, with the limit and not with the policy's cost."""
    pod = make()
    begin = time.monotonic()
    words = refused(pod)
    assert "is the limit for a pod that Tranche schedules" in words, words[:500]
    assert (time.monotonic() - begin) / pace() < LIMIT_S


def many_containers(number: int) -> dict[str, Any]:
    """Return a GPU pod with `number` further containers without a GPU."""
    pod = prepared()
    pod["spec"]["containers"] += [{"name": f"x{each}", "image": "a"} for each in range(number)]
    return pod


def test_limits_do_not_apply_to_pods_without_gpu(refused: Callable[[dict[str, Any]], str]) -> None:
    """The limits do not apply to pods without a GPU request."""
    assert refused(bare(containers=600)) == ""


def test_limits_apply_to_every_pod_of_our_scheduler(refused: Callable[[dict[str, Any]], str]) -> None:
    """The scheduler has to read it like a GPU pod."""
    pod = bare(containers=1)
    pod["spec"] |= {"schedulerName": "tranche", "affinity": affinity("nodeAffinity", [expressions(["v"])] * 33)}
    assert "32 is the limit" in refused(pod)


@pytest.mark.parametrize(
    "patch",
    [
        {"metadata": {"annotations": {"nvidia.com/use-gpuuuid": "x" * (limits.LIST_CHARACTERS + 1)}}},
        {"metadata": {"labels": dict.fromkeys(short_values(limits.POD_LABELS + 1), "")}},
        {
            "spec": {
                "tolerations": [{"key": f"k{each}", "operator": "Exists"} for each in range(limits.TOLERATIONS + 1)]
            }
        },
        {"spec": {"nodeSelector": dict.fromkeys(short_values(limits.NODE_SELECTOR_LABELS + 1), "")}},
        {"spec": {"affinity": affinity("nodeAffinity", [expressions(["v"])] * (limits.NODE_SELECTOR_TERMS + 1))}},
    ],
    ids=["annotation", "labels", "tolerations", "node-selector", "node-affinity"],
)
def test_update_of_a_pending_pod_is_held_to_the_limits(server: Layout, namespace: str, patch: dict[str, Any]) -> None:
    """Updates of a pending pod are held to the limits; other updates are admitted."""
    api, pod = client(server), prepared()
    pod["metadata"]["name"] = "waits"
    api.create(pod, namespace=namespace)
    why = refusal(lambda: api.patch("pods", "waits", patch, namespace=namespace, by="strategic"))
    assert "is the limit for a pod that Tranche schedules" in why
    api.patch("pods", "waits", {"metadata": {"labels": {"mine": "1"}}}, namespace=namespace)
