"""A GPUBinding gives out a card: nobody gets an application's cards by a label, and few can write a binding."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import pytest
import yaml

from allocation.names import SHARE_MODE_PREFIX
from lab import fleet, kubeconfig, kubectl, manifests, wait
from lab.client import client
from lab.errors import LabError
from tests.system.conftest import PATIENCE_S, Namespace, pod
from tests.system.support import gpubindings, tenants
from tests.system.support.gpubindings import binding, labels

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

    from lab.layout import Layout

pytestmark = [pytest.mark.apiserver, pytest.mark.timeout(180)]
NODE, APP = "gpu-sim-1", "comfyui"
CARD, OTHER = fleet.card(NODE, 3), fleet.card(NODE, 4)
POLICY = "tranche-gpubinding-writers"


@pytest.fixture(scope="module")
def bindings(tranche: Layout, request: pytest.FixtureRequest) -> Iterator[Layout]:
    """The lab in mode labelled; a test may have the processes run with one more flag."""
    flags = [request.param] if hasattr(request, "param") else []
    with gpubindings.applied(tranche, "labelled", *flags):
        yield tranche


@pytest.fixture
def write(bindings: Layout) -> Iterator[Callable[[dict[str, Any]], None]]:
    """Create a binding as administrator; all are deleted after the test."""
    yield lambda each: client(bindings).apply(each)
    client(bindings).delete_all("gpubindings")


@pytest.fixture
def others(make_namespace: Callable[..., Namespace]) -> Iterator[Namespace]:
    """The namespace of bob, where `namespace` is alice's."""
    made = make_namespace()
    yield made
    made.empty()


def app_pod(name: str, owner: str) -> dict[str, Any]:
    """Return a pod of a user's app with one card."""
    return pod(name, labels=labels(APP, owner), gpu=1)


def cards(pod_: dict[str, Any]) -> list[str]:
    """Return the UUIDs of a placed pod's cards."""
    containers = json.loads(pod_["metadata"]["annotations"]["gpu.scheduling/allocation"])["containers"]
    return [share["uuid"] for shares in containers.values() for share in shares]


def attempt(layout: Layout, identity: Path, *arguments: str, body: object = None) -> str:
    """Run kubectl with an identity; return the error, empty if it succeeds."""
    try:
        kubectl.run(layout, *arguments, stdin=json.dumps(body) if body is not None else None, kubeconfig=identity)
    except LabError as error:
        return error.why
    return ""


def writes(layout: Layout, identity: Path, name: str) -> dict[str, str]:
    """Try to create, change and delete a binding, as dry runs; return the error of each."""
    patch = json.dumps({"spec": {"owner": "mallory"}})
    dry = "--dry-run=server"
    return {
        "create": attempt(layout, identity, "create", dry, "-f", "-", body=binding("forged", OTHER, APP)),
        "patch": attempt(layout, identity, "patch", "gpubinding", name, dry, "--type=merge", "-p", patch),
        "delete": attempt(layout, identity, "delete", "gpubinding", name, dry),
    }


# ---- labels ----------------------------------------------------------------------------------------------------------


def test_labels_of_another_owner_give_no_card_in_another_namespace(
    namespace: Namespace, others: Namespace, write: Callable[[dict[str, Any]], None]
) -> None:
    """A pod of bob has the labels of alice, but the binding of the card names another namespace."""
    write(binding("alices", CARD, APP, owner="alice", namespace=namespace.name))
    others.create(app_pod("forged", "alice"))
    assert f"no card bound to app {APP} of alice in namespace {others.name}" in others.unplaced("forged")
    namespace.create(app_pod("own", "alice"))
    (placed,) = namespace.placed(1)
    assert cards(placed) == [CARD]
    assert not others.pod("forged")["spec"].get("nodeName")


def test_owners_of_one_application_do_not_share_bindings(
    namespace: Namespace, write: Callable[[dict[str, Any]], None]
) -> None:
    """Bob's own installation of the app has no binding, and gets none of Alice's cards, nor any other."""
    write(binding("alices", CARD, APP, owner="alice"))
    namespace.create(app_pod("bobs", "bob"))
    assert f"no card bound to app {APP} of bob" in namespace.unplaced("bobs")


def test_annotation_that_chooses_a_foreign_card_is_overridden(
    namespace: Namespace, write: Callable[[dict[str, Any]], None]
) -> None:
    """`nvidia.com/use-gpuuuid` does not widen what the bindings give."""
    write(binding("alices", CARD, APP, owner="alice"))
    write(binding("bobs", OTHER, APP, owner="bob"))
    manifest = app_pod("bobs", "bob")
    manifest["metadata"]["annotations"] = {"nvidia.com/use-gpuuuid": CARD}
    namespace.create(manifest)
    (placed,) = namespace.placed(1)
    assert cards(placed) == [OTHER]


# ---- who writes ------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("role", ["edit", "admin"])
def test_rights_in_a_namespace_are_not_enough_to_give_out_cards(
    namespace: Namespace, write: Callable[[dict[str, Any]], None], role: str
) -> None:
    """Neither by a binding nor by the share mode of a card, which is an annotation of its node."""
    write(binding("alices", CARD, APP))
    tenant = tenants.account(namespace, f"{role}s", role=role)
    for verb, why in writes(namespace.layout, tenant.kubeconfig, "alices").items():
        assert f'cannot {"get" if verb == "patch" else verb} resource "gpubindings"' in why, (verb, why)
    annotate = ("annotate", "node", NODE, f"{SHARE_MODE_PREFIX}{CARD}=0")
    assert 'resource "nodes"' in attempt(namespace.layout, tenant.kubeconfig, *annotate)


@pytest.mark.parametrize("process", ["scheduler", "webhook", "agent"])
def test_no_process_of_ours_writes_a_binding(
    bindings: Layout, write: Callable[[dict[str, Any]], None], process: str
) -> None:
    """A stolen token of Tranche changes no binding."""
    write(binding("alices", CARD, APP))
    identity = kubeconfig.service_account_kubeconfig(bindings, namespace="tranche-system", name=f"tranche-{process}")
    for why in writes(bindings, identity, "alices").values():
        assert 'resource "gpubindings"' in why
    for verb in ("create", "update", "patch", "delete", "deletecollection"):
        assert attempt(bindings, identity, "auth", "can-i", verb, gpubindings.DEFINITION), verb


@pytest.fixture
def app_service(namespace: Namespace, bindings: Layout) -> Iterator[tenants.Tenant]:
    """An account that may write bindings and that the policy lists."""
    service = tenants.account(namespace, "app-service", role="view")
    name = f"app-service-{namespace.name}"
    role = {"apiVersion": "rbac.authorization.k8s.io/v1", "metadata": {"name": name}}
    rule = {"apiGroups": ["gpu.bytetrade.io"], "resources": ["gpubindings"], "verbs": ["*"]}
    account = {"kind": "ServiceAccount", "name": "app-service", "namespace": namespace.name}
    reference = {"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": name}
    roles = (
        {**role, "kind": "ClusterRole", "rules": [rule]},
        {**role, "kind": "ClusterRoleBinding", "roleRef": reference, "subjects": [account]},
    )
    file = manifests.ROOT / "gpubindings" / "writers" / "policy.yaml"
    policy, bound = yaml.safe_load_all(file.read_text(encoding="utf-8"))
    writer = f"system:serviceaccount:{namespace.name}:app-service"
    policy["spec"]["variables"] = [{"name": "writers", "expression": f"['{writer}']"}]
    client(bindings).apply(*roles)
    client(bindings).apply(binding("alices", CARD, APP))
    try:
        client(bindings).apply(policy, bound)
        wait.until(
            lambda: all(writes(bindings, bindings.kubeconfig, "alices").values()),
            what="the policy in force",
            timeout_s=PATIENCE_S,
        )
        yield service
    finally:
        gpubindings.delete(bindings, bound, policy, *roles)
        wait.until(
            lambda: not any(writes(bindings, bindings.kubeconfig, "alices").values()),
            what="the end of the policy",
            timeout_s=PATIENCE_S,
        )
        client(bindings).delete_all("gpubindings")


def test_only_listed_writers_write_with_the_policy(
    namespace: Namespace, bindings: Layout, app_service: tenants.Tenant
) -> None:
    """Not even an administrator; the message names who may. The listed account still needs its role."""
    writer = f"system:serviceaccount:{namespace.name}:app-service"
    for why in writes(bindings, bindings.kubeconfig, "alices").values():
        assert f"may not write GPUBindings, which give out cards: only {writer} may (policy {POLICY})" in why
    assert POLICY in attempt(bindings, bindings.kubeconfig, "delete", "gpubindings", "--all")
    assert client(bindings).get("gpubinding", "alices")["spec"]["uuid"] == CARD
    assert set(writes(bindings, app_service.kubeconfig, "alices").values()) == {""}


# ---- bindings without a namespace ------------------------------------------------------------------------------------


def test_binding_without_a_namespace_trusts_every_namespace(
    others: Namespace, write: Callable[[dict[str, Any]], None]
) -> None:
    """The limit that docs/threat-model.md names: any pod with the labels gets the card."""
    write(binding("alices", CARD, APP, owner="alice"))
    others.create(app_pod("forged", "alice"))
    (placed,) = others.placed(1)
    assert cards(placed) == [CARD]


@pytest.mark.parametrize("bindings", ["--allocation-bindings-require-namespace=true"], indirect=True)
def test_binding_without_a_namespace_gives_nothing_where_one_is_required(
    namespace: Namespace, others: Namespace, write: Callable[[dict[str, Any]], None]
) -> None:
    """With `require_namespace` only the pods of the named namespace have the card."""
    write(binding("alices", CARD, APP, owner="alice"))
    others.create(app_pod("forged", "alice"))
    assert f"no card bound to app {APP} of alice" in others.unplaced("forged")
    write(binding("alices", CARD, APP, owner="alice", namespace=namespace.name))
    namespace.create(app_pod("own", "alice"))
    (placed,) = namespace.placed(1)
    assert cards(placed) == [CARD]
    assert not others.pod("forged")["spec"].get("nodeName")
