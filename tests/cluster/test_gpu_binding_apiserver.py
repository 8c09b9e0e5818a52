"""The GPUBinding kind on a real API server: what it accepts, columns, and that Tranche reads what is stored."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import msgspec
import pytest
import yaml

from allocation import quantity
from cluster.gpu_binding import GpuBinding
from lab import kubectl, manifests
from lab.errors import LabError

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


def create(layout: Layout, manifest: dict[str, Any], *options: str) -> dict[str, Any]:
    """Create a binding and return it as stored."""
    stored: dict[str, Any] = json.loads(
        kubectl.run(layout, "create", "-o", "json", *options, "-f", "-", stdin=json.dumps(manifest))
    )
    return stored


def refusal(layout: Layout, manifest: dict[str, Any]) -> str:
    """Create a binding, which must be refused; return the error."""
    with pytest.raises(LabError) as caught:
        create(layout, manifest, "--dry-run=server")
    return caught.value.why


@pytest.fixture(scope="module")
def cluster(control_plane: Layout) -> Iterator[Layout]:
    """The API server with the definition."""
    folder = manifests.ROOT / "gpubindings"
    definition = yaml.safe_load((folder / "crd.yaml").read_text(encoding="utf-8"))
    kubectl.apply(control_plane, definition)
    kubectl.run(control_plane, "wait", "--for=condition=Established", "--timeout=30s", f"crd/{NAME}")
    yield control_plane
    kubectl.run(control_plane, "delete", "crd", NAME)


@pytest.mark.parametrize(
    "spec",
    [
        {},
        {"owner": "alice"},
        {"owner": "alice", "namespace": "ns-a", "podSelector": SELECTOR},
        {"owner": "", "namespace": "", "podSelector": {}},
    ],
)
def test_stored_bindings_are_what_the_scheduler_reads(cluster: Layout, spec: dict[str, Any]) -> None:
    """No field is dropped or added, and our code reads each."""
    stored = create(cluster, binding(**spec), "--dry-run=server")
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
def test_memory_is_stored_as_written(cluster: Layout, memory: int | str, mib: int) -> None:
    """The scheduler reads the writer's own text: Kubernetes' form of 24000 is 24k."""
    stored = create(cluster, binding(memory=memory), "--dry-run=server")
    assert stored["spec"]["memory"] == memory
    assert quantity.binding_mib(msgspec.convert(stored, GpuBinding).spec.memory or 0) == mib


@pytest.mark.parametrize("memory", [0, -1, "0", "-1Gi", "0Ki"])
def test_memory_must_be_more_than_0(cluster: Layout, memory: int | str) -> None:
    """Both as a number and as text."""
    assert "memory must be more than 0" in refusal(cluster, binding(memory=memory))


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
def test_incomplete_bindings_are_refused(cluster: Layout, spec: dict[str, Any], field: str) -> None:
    """The error names the field."""
    assert field in refusal(cluster, binding(**spec))


def test_columns_show_whose_card_it_is(cluster: Layout) -> None:
    """Without -o wide."""
    create(cluster, binding("columns", owner="alice", namespace="ns-a", memory="24k"))
    try:
        header, row = kubectl.run(cluster, "get", "gpubindings").splitlines()
        assert header.split() == ["NAME", "UUID", "APP", "OWNER", "NAMESPACE", "MEMORY", "AGE"]
        assert row.split()[:-1] == ["columns", "GPU-a", "comfyui", "alice", "ns-a", "24k"]
    finally:
        kubectl.run(cluster, "delete", "gpubinding", "columns")
