"""A GPUBinding gives out a card: few can write one."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
import yaml

from allocation.names import SHARE_MODE_PREFIX
from cluster.resource import GPU_BINDINGS
from lab import fleet, manifests, wait
from lab.client import Client, client
from tests.policies.support.pods import NODE
from tests.support import identities
from tests.support.access import may
from tests.support.patience import PATIENCE_S
from tests.support.refusals import refusal
from tests.system.support.gpubindings import DEFINITION, binding, component
from tests.system.support.hami_nodes import delete

if TYPE_CHECKING:
    from collections.abc import Iterator

    from lab.layout import Layout

pytestmark = pytest.mark.apiserver
APP = "comfyui"
CARD, OTHER = fleet.card(NODE, 3), fleet.card(NODE, 4)
POLICY = "tranche-gpubinding-writers"
WRITER = "app-service"


@pytest.fixture(scope="module")
def bindings(server: Layout) -> Iterator[Layout]:
    """The control plane with the component, and a binding that an administrator made."""
    api = client(server)
    api.apply(*component())
    api.until_established(DEFINITION)
    api.apply(binding("alices", CARD, APP))
    yield server
    delete(server, *component())


def writes(api: Client) -> dict[str, str]:
    """Try to create, change and delete a binding, as dry runs; return why each is refused, empty if it is not."""
    path = api.path("gpubinding", "alices")
    return {
        "create": refusal(lambda: api.create(binding("forged", OTHER, APP), dry_run=True)),
        "patch": refusal(lambda: api.patch("gpubinding", "alices", {"spec": {"owner": "mallory"}}, dry_run=True)),
        "delete": refusal(lambda: api.request("DELETE", path, dryRun="All")),
    }


@pytest.mark.parametrize("role", ["edit", "admin"])
def test_rights_in_a_namespace_are_not_enough_to_give_out_cards(
    bindings: Layout, node: str, namespace: str, role: str
) -> None:
    """Neither by a binding nor by the share mode of a card, which is an annotation of its node."""
    api = identities.tenant(bindings, namespace, role=role)
    for verb, why in writes(api).items():
        assert f'cannot {verb} resource "gpubindings"' in why
    annotation = {"metadata": {"annotations": {f"{SHARE_MODE_PREFIX}{CARD}": "0"}}}
    assert 'cannot patch resource "nodes"' in refusal(lambda: api.patch("node", node, annotation))


@pytest.mark.parametrize("process", ["scheduler", "webhook", "agent"])
def test_no_process_of_ours_writes_a_binding(bindings: Layout, process: str) -> None:
    """A stolen token of Tranche changes no binding."""
    api = identities.process(bindings, process)
    for why in writes(api).values():
        assert 'resource "gpubindings"' in why
    verbs = ("create", "update", "patch", "delete", "deletecollection")
    assert not [verb for verb in verbs if may(api, verb, DEFINITION)]


@pytest.fixture
def listed(bindings: Layout) -> Iterator[Client]:
    """The policy in force, with one writer in its list; the API as this writer has it, who has a role, too."""
    group = "rbac.authorization.k8s.io"
    head = {"apiVersion": f"{group}/v1", "metadata": {"name": WRITER}}
    rule = {"apiGroups": [GPU_BINDINGS.group], "resources": [GPU_BINDINGS.plural], "verbs": ["*"]}
    subject = {"apiGroup": group, "kind": "User", "name": WRITER}
    reference = {"apiGroup": group, "kind": "ClusterRole", "name": WRITER}
    roles = (
        {**head, "kind": "ClusterRole", "rules": [rule]},
        {**head, "kind": "ClusterRoleBinding", "roleRef": reference, "subjects": [subject]},
    )
    file = manifests.ROOT / "gpubindings" / "writers" / "policy.yaml"
    policy, bound = yaml.safe_load_all(file.read_text(encoding="utf-8"))
    policy["spec"]["variables"] = [{"name": "writers", "expression": f"['{WRITER}']"}]
    administrator = client(bindings)
    try:
        administrator.apply(*roles, policy, bound)
        wait.until(lambda: all(writes(administrator).values()), what="the policy in force", timeout_s=PATIENCE_S)
        yield client(bindings, user=WRITER)
    finally:
        delete(bindings, bound, policy, *roles)
        wait.until(lambda: not any(writes(administrator).values()), what="the end of the policy", timeout_s=PATIENCE_S)


def test_only_listed_writers_write_with_the_policy(bindings: Layout, listed: Client) -> None:
    """Not even an administrator; the message names who may. The listed account still needs its role."""
    administrator = client(bindings)
    for why in writes(administrator).values():
        assert f"may not write GPUBindings, which give out cards: only {WRITER} may (policy {POLICY})" in why
    assert POLICY in refusal(lambda: administrator.delete_all("gpubindings", wait=False))
    assert administrator.get("gpubinding", "alices")["spec"]["uuid"] == CARD
    assert set(writes(listed).values()) == {""}
