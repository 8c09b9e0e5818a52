"""The API server does what the scheduler relies on."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import msgspec
import pytest

from allocation.label_selector import Expression
from lab import kubectl
from scheduler.filters import affinity_terms
from scheduler.objects import Pod
from tests.support import namespaces

if TYPE_CHECKING:
    from lab.layout import Layout

pytestmark = pytest.mark.apiserver


def admitted(layout: Layout, term: dict[str, Any]) -> Pod:
    """Return a pod with this required anti-affinity as the API server would store it."""
    namespaces.usable(layout, "default")
    manifest = {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": "label-keys", "labels": {"app": "web", "version": "2"}},
        "spec": {
            "containers": [{"name": "main", "image": "registry.k8s.io/pause:3.10"}],
            "affinity": {"podAntiAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": [term]}},
        },
    }
    stored = kubectl.run(layout, "create", "--dry-run=server", "-o", "json", "-f", "-", stdin=json.dumps(manifest))
    return msgspec.json.decode(stored, type=Pod)


def test_match_label_keys_of_affinity_are_in_the_selector_already(control_plane: Layout) -> None:
    """The scheduler need not read matchLabelKeys and mismatchLabelKeys: the API server has merged the pod's values."""
    term = {
        "topologyKey": "zone",
        "labelSelector": {"matchLabels": {"app": "web"}},
        "matchLabelKeys": ["version"],
        "mismatchLabelKeys": ["app"],
    }
    (read,) = affinity_terms.anti_affinity(admitted(control_plane, term))
    assert read.selector is not None
    assert set(read.selector) == {
        Expression("app", "In", ("web",)),
        Expression("version", "In", ("2",)),
        Expression("app", "NotIn", ("web",)),
    }
