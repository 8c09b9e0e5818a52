"""The GPUBinding kind on a real API server: what it accepts, columns, and that Tranche reads what is stored."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import msgspec
import pytest
import yaml

from allocation import quantity
from cluster.gpu_binding import GpuBinding
from lab import manifests
from tests.cluster.support.stored import Stored

if TYPE_CHECKING:
    from collections.abc import Iterator

    from lab.layout import Layout

pytestmark = pytest.mark.apiserver
NAME = "gpubindings.gpu.bytetrade.io"
SELECTOR = {
    "matchLabels": {"applications.app.bytetrade.io/name": "comfyui"},
    "matchExpressions": [{"key": "tier", "operator": "NotIn", "values": ["test"]}],
}


def binding(name: str = "one", **spec: Any) -> dict[str, Any]:
    """Return a binding; a field that is None is left out."""
    fields = {"uuid": "GPU-a", "appName": "comfyui", **spec}
    return {
        "apiVersion": "gpu.bytetrade.io/v1alpha1",
        "kind": "GPUBinding",
        "metadata": {"name": name},
        "spec": {key: value for key, value in fields.items() if value is not None},
    }


@pytest.fixture(scope="module")
def cluster(control_plane: Layout) -> Iterator[Stored]:
    """The API server with the definition."""
    folder = manifests.ROOT / "gpubindings"
    definition = yaml.safe_load((folder / "crd.yaml").read_text(encoding="utf-8"))
    stored = Stored(control_plane, NAME)
    stored.api.apply(definition)
    stored.api.until_established(NAME)
    yield stored
    stored.api.delete("crd", NAME)


@pytest.mark.parametrize(
    "spec",
    [
        {},
        {"owner": "alice"},
        {"owner": "alice", "namespace": "ns-a", "podSelector": SELECTOR},
        {"owner": "", "namespace": "", "podSelector": {}},
    ],
)
def test_stored_bindings_are_what_the_scheduler_reads(cluster: Stored, spec: dict[str, Any]) -> None:
    """No field is dropped or added, and our code reads each."""
    stored = cluster.would_be(binding(**spec))
    assert stored["spec"] == {"uuid": "GPU-a", "appName": "comfyui", **spec}
    read = msgspec.convert(stored, GpuBinding).binding
    assert (read.name, read.spec.uuid, read.spec.app_name) == ("one", "GPU-a", "comfyui")
    assert (read.spec.owner, read.spec.namespace) == (spec.get("owner", ""), spec.get("namespace", ""))
    assert (read.spec.pod_selector is None) == ("podSelector" not in spec)
    assert read.created == stored["metadata"]["creationTimestamp"]


@pytest.mark.parametrize(
    ("memory", "mib"),
    [(23552, 23552), ("23552", 23552), ("24k", 24000), ("8Gi", 8192), ("8G", 7630), (1, 1), ("1Ki", 1), ("+3k", 3000)],
)
def test_memory_is_stored_as_written(cluster: Stored, memory: int | str, mib: int) -> None:
    """The scheduler reads the writer's own text: Kubernetes' form of 24000 is 24k."""
    stored = cluster.would_be(binding(memory=memory))
    assert stored["spec"]["memory"] == memory
    assert quantity.binding_mib(msgspec.convert(stored, GpuBinding).spec.memory or 0) == mib


@pytest.mark.parametrize("memory", [0, -1, "0", "-1Gi", "0Ki"])
def test_memory_must_be_more_than_0(cluster: Stored, memory: int | str) -> None:
    """Both as a number and as text."""
    assert "memory must be more than 0" in cluster.refusal(binding(memory=memory))


@pytest.mark.parametrize(
    ("spec", "field"),
    [
        ({"uuid": None}, "spec.uuid"),
        ({"uuid": ""}, "spec.uuid"),
        ({"appName": None}, "spec.appName"),
        ({"appName": ""}, "spec.appName"),
        ({"memory": "abc"}, "spec.memory"),
        ({"memory": "24K"}, "spec.memory"),
        ({"podSelector": {"matchExpressions": [{"key": "a"}]}}, "spec.podSelector.matchExpressions[0].operator"),
    ],
)
def test_incomplete_bindings_are_refused(cluster: Stored, spec: dict[str, Any], field: str) -> None:
    """The error names the field."""
    assert field in cluster.refusal(binding(**spec))


def test_columns_show_whose_card_it_is(cluster: Stored) -> None:
    """Without -o wide."""
    cluster.create(binding("columns", owner="alice", namespace="ns-a", memory="24k"))
    try:
        header, row = cluster.listing("columns", kind="gpubindings")
        assert header == ["NAME", "UUID", "APP", "OWNER", "NAMESPACE", "MEMORY", "AGE"]
        assert row[:-1] == ["columns", "GPU-a", "comfyui", "alice", "ns-a", "24k"]
    finally:
        cluster.api.delete(NAME, "columns")
