"""Components of the manifests guard more: every namespace, or a namespace and a scheduler by their names."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from lab import wait
from tests.policies.support.guards import GATES, KEYS, NAMED, OPERATOR, OUT, RESOURCES, RESREQ, RUNTIME, pod
from tests.support.patience import PATIENCE_S

if TYPE_CHECKING:
    from collections.abc import Iterator

    from tests.policies.support.guards import Guarded

pytestmark = pytest.mark.apiserver


@pytest.fixture
def everywhere(guarded: Guarded) -> Iterator[Guarded]:
    """Yield the same with the component that guards every namespace."""
    guarded.apply_policies(component="cluster-wide")
    sent = pod(annotations={KEYS[0]: "x"})
    wait.until(lambda: guarded.refusal(sent, namespace=OUT), what="the component in force", timeout_s=PATIENCE_S)
    yield guarded
    guarded.apply_policies()
    wait.until(lambda: not guarded.refusal(sent, namespace=OUT), what="the component gone", timeout_s=PATIENCE_S)


def test_cluster_wide_component_guards_other_namespaces(everywhere: Guarded) -> None:
    """The component cluster-wide guards annotations everywhere except in the operator's namespace."""
    for key in KEYS:
        asking = pod(annotations={key: "management.nvidia.com/gpu=all"})
        assert RUNTIME in everywhere.refusal(asking, namespace=OUT)
        assert RUNTIME in everywhere.refusal(asking, namespace="kube-public", user="")
        assert everywhere.refusal(asking, namespace=OPERATOR) == ""
    gated = pod()
    gated["spec"]["schedulingGates"] = GATES
    everywhere.api().create(gated, namespace=OUT)
    why = everywhere.annotation_refusal("p", KEYS[0], "x", namespace=OUT)
    assert "it can be neither added nor changed nor" in why
    everywhere.api().delete("pod", "p", namespace=OUT, grace_s=0)


@pytest.fixture
def named(guarded: Guarded) -> Iterator[Guarded]:
    """Yield the same with the component gpu-scheduler, which opts in a namespace by name; it has no label."""
    guarded.apply_policies(component=NAMED)
    sent = pod(annotations={KEYS[0]: "x"})
    wait.until(lambda: guarded.refusal(sent, namespace=NAMED), what="the component in force", timeout_s=PATIENCE_S)
    yield guarded
    guarded.apply_policies()
    wait.until(lambda: not guarded.refusal(sent, namespace=NAMED), what="the component gone", timeout_s=PATIENCE_S)


def test_namespace_opted_in_by_name_is_guarded(named: Guarded) -> None:
    """While the webhook is down, a GPU pod there is refused as in a namespace with the label, unless it opts out."""
    sent = pod({RESOURCES[0]: 1})
    del sent["spec"]["schedulerName"]
    assert "did not prepare this pod" in named.refusal(sent, namespace=NAMED)
    assert named.refusal(sent, namespace=OUT) == ""
    sent["metadata"]["labels"] = {"gpu.scheduling/injection": "disabled"}
    assert named.refusal(sent, namespace=NAMED) == ""
    assert RUNTIME in named.refusal(pod(annotations={KEYS[0]: "nvidia.com/gpu=all"}), namespace=NAMED)
    assert named.refusal(pod(annotations={KEYS[0]: "nvidia.com/gpu=all"}), namespace=OUT) == ""


def test_alias_is_guarded_in_every_namespace(named: Guarded) -> None:
    """The scheduler takes pods of its alias wherever they are, so they must be prepared, and may not be too large."""
    sent = pod({RESOURCES[0]: 1})
    assert named.refusal(sent, namespace=OUT) == ""
    sent["spec"]["schedulerName"] = NAMED
    assert "did not prepare this pod" in named.refusal(sent, namespace=OUT)
    large = pod()
    large["spec"] |= {"schedulerName": NAMED, "nodeSelector": {f"label-{number}": "x" for number in range(33)}}
    assert "spec.nodeSelector has 33 labels, 32 is the limit" in named.refusal(large, namespace=OUT)


def test_requirement_of_an_alias_is_guarded(named: Guarded) -> None:
    """The webhook turns the requirements of such pods into requests, too."""
    sent = pod(annotations={RESREQ: "gpu=1"})
    assert named.refusal(sent, namespace=NAMED) == ""
    sent["spec"]["schedulerName"] = NAMED
    assert f"annotation {RESREQ} asks for a GPU" in named.refusal(sent, namespace=NAMED)
