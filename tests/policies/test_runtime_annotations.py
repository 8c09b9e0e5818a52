"""Annotations by which plugins of the container runtime give out cards are refused, for tenants and in Bindings."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

from lab.client import client
from tests.policies.support.guards import GATES, IN, KEYS, OUT, RUNTIME, pod
from tests.policies.support.pods import binding
from tests.support.refusals import refusal

if TYPE_CHECKING:
    from tests.policies.support.guards import Guarded

pytestmark = pytest.mark.apiserver


@pytest.mark.parametrize("key", KEYS)
@pytest.mark.parametrize("limits", [{}, {"nvidia.com/gpu": 1}], ids=["plain", "gpu"])
def test_runtime_plugin_annotation_is_refused_at_creation(guarded: Guarded, key: str, limits: dict[str, Any]) -> None:
    """With such a plugin, the annotation would give any card even to a pod without a GPU request."""
    words = guarded.refusal(pod(limits, annotations={key: "nvidia.com/gpu=all"}))
    assert f"annotation {key} {RUNTIME}" in words
    assert guarded.refusal(pod(limits, annotations={"mine.cdi.k8s.io/x": "1", "nvidia.com/containers": "1"})) == ""


@pytest.mark.parametrize("key", KEYS)
def test_runtime_plugin_annotation_is_refused_in_an_update(guarded: Guarded, key: str) -> None:
    """A restarted container would read the annotation."""
    name = f"later-{KEYS.index(key)}"
    sent = pod({"cpu": 1})
    sent["metadata"]["name"] = name
    sent["spec"]["schedulingGates"] = GATES
    guarded.api().create(sent, namespace=IN)
    assert "it can be neither added nor changed nor" in guarded.annotation_refusal(name, key, "nvidia.com/gpu=all")
    assert guarded.annotation_refusal(name, "mine", "1") == ""


@pytest.mark.parametrize("key", KEYS)
@pytest.mark.parametrize("subresource", ["pods/p/binding", "bindings"])
def test_runtime_plugin_annotation_is_refused_in_a_binding(guarded: Guarded, key: str, subresource: str) -> None:
    """A Binding's annotations become the pod's; only the scheduler's Binding, checked by the fence, may have these."""
    body = binding("p", {key: "nvidia.com/gpu=all"}, fenced=False)
    path = f"/api/v1/namespaces/{OUT}/{subresource}"
    why = refusal(lambda: client(guarded.layout).request("POST", path, body=body, dryRun="All"))
    assert "is written by the Tranche scheduler" in why


def test_annotations_of_other_namespaces_are_not_guarded_by_default(guarded: Guarded) -> None:
    """Without the component, another GPU scheduler may write them in namespaces that did not opt in."""
    assert guarded.refusal(pod(annotations={KEYS[0]: "x"}), namespace=OUT) == ""
