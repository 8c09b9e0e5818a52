"""An API server with our manifests and none of our processes: what it refuses, it refuses by itself."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

from lab import manifests, wait
from lab.client import client
from tests.policies.support import guards, pods
from tests.policies.support.leader import Leader
from tests.support import identities, namespaces
from tests.support.patience import PATIENCE_S
from tests.support.refusals import refusal

if TYPE_CHECKING:
    from collections.abc import Iterator

    from lab.layout import Layout

_LAST = "tests-in-force"


@pytest.fixture(scope="session")
def server(control_plane: Layout) -> Layout:
    """The control plane with our manifests, and every policy in force.

    The API server reads policies in the order in which they were made, some moments later: one that is made last, and
    that refuses something, says that the others are read.
    """
    manifests.install(control_plane)
    api = client(control_plane)
    head: dict[str, Any] = {"apiVersion": "admissionregistration.k8s.io/v1", "metadata": {"name": _LAST}}
    rule = {"apiGroups": [""], "apiVersions": ["v1"], "operations": ["CREATE"], "resources": ["configmaps"]}
    spec = {
        "matchConstraints": {"resourceRules": [rule]},
        "validations": [{"expression": f"object.metadata.name != '{_LAST}'"}],
    }
    bound = {"policyName": _LAST, "validationActions": ["Deny"]}
    api.apply(
        {**head, "kind": "ValidatingAdmissionPolicy", "spec": spec},
        {**head, "kind": "ValidatingAdmissionPolicyBinding", "spec": bound},
    )
    probe = {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": _LAST, "namespace": "default"}}
    wait.until(lambda: refusal(lambda: api.create(probe, dry_run=True)), what="policies in force", timeout_s=PATIENCE_S)
    for kind in ("validatingadmissionpolicybinding", "validatingadmissionpolicy"):
        api.delete(kind, _LAST)
    return control_plane


@pytest.fixture(scope="module")
def leader(server: Layout) -> Iterator[Leader]:
    """The scheduler that leads; no process of it runs."""
    leading = Leader(server)
    leading.lead()
    yield leading
    leading.resign()


@pytest.fixture(scope="module")
def node(server: Layout) -> Iterator[str]:
    """A Node without a kubelet."""
    client(server).apply({"apiVersion": "v1", "kind": "Node", "metadata": {"name": pods.NODE}})
    yield pods.NODE
    client(server).delete("node", pods.NODE)


@pytest.fixture(scope="session")
def guarded(server: Layout) -> Iterator[guards.Guarded]:
    """Four namespaces, one of which opted in; a tenant has the role `edit` in each."""
    where = (guards.IN, guards.OUT, guards.OPERATOR, guards.NAMED)
    for name in where:
        namespaces.create(server, name, {"gpu.scheduling/injection": "enabled"} if name == guards.IN else {})
        identities.grant(server, name, guards.TENANT, role="edit")
    yield guards.Guarded(server)
    for name in where:
        client(server).delete("namespace", name, wait=False)


@pytest.fixture(scope="module")
def made(server: Layout, request: pytest.FixtureRequest) -> Iterator[tuple[str, str]]:
    """Two namespaces of a module, of which the first opted in."""
    module = request.module.__name__.rpartition(".test_")[2].replace("_", "-")
    names = (f"policies-{module}-in", f"policies-{module}-out")
    for name in names:  # those of an earlier visit, if tests run in random order
        client(server).until_deleted(name)
    namespaces.create(server, names[0], {"gpu.scheduling/injection": "enabled"})
    namespaces.create(server, names[1])
    yield names
    for name in names:
        client(server).delete("namespace", name, wait=False)


@pytest.fixture
def namespace(server: Layout, made: tuple[str, str]) -> Iterator[str]:
    """An opted-in namespace without pods."""
    yield made[0]
    pods.remove_all(server, made[0])


@pytest.fixture
def plain_namespace(server: Layout, made: tuple[str, str]) -> Iterator[str]:
    """A namespace without pods that is not opted in."""
    yield made[1]
    pods.remove_all(server, made[1])
