"""PodGroups in the lab: their definition, the component manifests/coscheduling, and a scheduler that reads them."""

from __future__ import annotations

from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

from cluster.resource import POD_GROUPS
from lab import manifests
from lab.client import client
from tests.system.support.hami_nodes import delete
from tests.system.support.restarts import restart

if TYPE_CHECKING:
    from collections.abc import Iterator

    from lab.layout import Layout

LABEL = "scheduling.x-k8s.io/pod-group"
_INT32 = {"type": "integer", "format": "int32"}
_NAME = f"{POD_GROUPS.plural}.{POD_GROUPS.group}"
_SPEC = {
    "type": "object",
    "properties": {
        "minMember": {**_INT32, "minimum": 1},
        "scheduleTimeoutSeconds": _INT32,
        "minResources": {"type": "object", "x-kubernetes-preserve-unknown-fields": True},
    },
}
DEFINITION = {
    "apiVersion": "apiextensions.k8s.io/v1",
    "kind": "CustomResourceDefinition",
    "metadata": {
        "name": _NAME,
        "annotations": {"api-approved.kubernetes.io": "https://github.com/kubernetes-sigs/scheduler-plugins/pull/50"},
    },
    "spec": {
        "group": POD_GROUPS.group,
        "scope": "Namespaced",
        "names": {"kind": POD_GROUPS.kind, "plural": POD_GROUPS.plural, "singular": "podgroup"},
        "versions": [
            {
                "name": POD_GROUPS.version,
                "served": True,
                "storage": True,
                "subresources": {"status": {}},
                "schema": {"openAPIV3Schema": {"type": "object", "properties": {"spec": _SPEC}}},
            }
        ],
    },
}
"""PodGroups with the types and limits that scheduler-plugins gives them."""


def component() -> list[dict[str, Any]]:
    """Return the objects that manifests/coscheduling adds."""
    return manifests.read((manifests.ROOT / "coscheduling" / "rbac.yaml").read_text(encoding="utf-8"))


@contextmanager
def applied(layout: Layout) -> Iterator[None]:
    """Define PodGroups, install the component, and run the scheduler with its flag; restore the lab afterwards."""
    client(layout).apply(DEFINITION, *component())
    client(layout).until_established(_NAME)
    try:
        restart(layout, "scheduler", "--gangs-pod-groups=true")
        yield
    finally:
        restart(layout, "scheduler")
        delete(layout, DEFINITION, *component())


def pod_group(name: str, **spec: Any) -> dict[str, Any]:
    """Return a PodGroup with these fields in its spec."""
    return {
        "apiVersion": POD_GROUPS.api_version,
        "kind": POD_GROUPS.kind,
        "metadata": {"name": name},
        "spec": spec,
    }
