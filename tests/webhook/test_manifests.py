"""The manifests say the same as the code: what is written twice must not drift apart."""

from pathlib import Path
from typing import Any

import pytest
import yaml

from allocation import environment, names
from allocation.names import SYSTEM_NAMESPACE
from allocation.settings import ResourceNames
from certs import canary
from certs.authority_secret import SECRET
from certs.ca_bundle import CONFIGURATION
from webhook.settings import WebhookSettings

BASE = Path(__file__).parents[2] / "manifests" / "base"


def objects(file: str) -> dict[tuple[str, str], dict[str, Any]]:
    """Read a manifest; answer its objects by kind and name."""
    found = yaml.safe_load_all((BASE / file).read_text())
    return {(each["kind"], each["metadata"]["name"]): each for each in found}


POLICIES = objects("policies.yaml")
*WEBHOOKS, DEBUG, CANARY = objects("webhook.yaml")["MutatingWebhookConfiguration", CONFIGURATION]["webhooks"]
OUTPUT_KEYS = (
    *(names.ALLOCATION, names.ALLOCATED, names.LEADER),
    *(f"'{prefix}'" for prefix in names.OUTPUT_PREFIXES),
    f"'.{names.ENVIRONMENT_DOMAIN}/'",
)


def expressions(policy: str) -> dict[str, str]:
    """Answer the named expressions of a policy."""
    spec = POLICIES["ValidatingAdmissionPolicy", policy]["spec"]
    return {each["name"]: each["expression"] for each in (*spec.get("matchConditions", ()), *spec["variables"])}


@pytest.mark.parametrize(
    "expression",
    [
        *(webhook["matchConditions"][0]["expression"] for webhook in WEBHOOKS),
        expressions("tranche-creation")["concerns-gpus"],
        expressions("tranche-creation")["forged"],
        expressions("tranche-allocation-update")["changed"],
        expressions("tranche-allocation-binding")["carried"],
    ],
)
def test_every_output_key_is_guarded(expression: str) -> None:
    """A key that the ledger believes and a policy does not know could be forged."""
    assert [key for key in OUTPUT_KEYS if key not in expression] == []


@pytest.mark.parametrize(
    "expression",
    [
        *(webhook["matchConditions"][0]["expression"] for webhook in WEBHOOKS),
        expressions("tranche-creation")["concerns-gpus"],
        expressions("tranche-creation")["gpuContainers"],
        expressions("tranche-resize")["resources"],
    ],
)
def test_every_resource_counts_as_a_request(expression: str) -> None:
    """A resource that the scheduler reads and the API server does not would pass by."""
    assert [name for name in ResourceNames().asking() if f"'{name}'" not in expression] == []


@pytest.mark.parametrize("policy", ["tranche-creation", "tranche-debug"])
def test_policy_requires_the_variables_of_every_container(policy: str) -> None:
    """Whatever its number of cards."""
    required = expressions(policy)["required"]
    assert [name for name in environment.references("main", 0) if f"'{name}'" not in required] == []


@pytest.mark.parametrize(
    "expression",
    [
        expressions("tranche-creation")["bare"],
        expressions("tranche-creation")["seeing"],
        expressions("tranche-debug")["seeing"],
    ],
)
def test_policy_knows_every_owned_variable(expression: str) -> None:
    """What the webhook takes away the policy refuses, when nobody takes it away."""
    assert "variables.required" in expression
    assert "'CUDA_DEVICE_MEMORY_LIMIT_'" in expression
    others = environment.OWNED - environment.references("main", 0).keys()
    assert [name for name in others if f"'{name}'" not in expression] == []


def test_policy_and_webhook_trust_the_same() -> None:
    """Who may allocate statically by default."""
    trusted = expressions("tranche-creation")["isTrusted"]
    assert [name for name in WebhookSettings().trusted if f"'{name}'" not in trusted] == []


def test_webhook_and_policy_cover_the_same_debug_containers() -> None:
    """Read from the spec alone: a label may flip, and a policy that went by it with it."""
    policy = POLICIES["ValidatingAdmissionPolicy", "tranche-debug"]["spec"]
    binding = POLICIES["ValidatingAdmissionPolicyBinding", "tranche-debug"]["spec"]
    assert DEBUG["matchConditions"] == policy["matchConditions"]
    assert DEBUG["namespaceSelector"] == binding["matchResources"]["namespaceSelector"]
    assert "objectSelector" not in DEBUG
    assert {**DEBUG["rules"][0], "scope": None} == {**policy["matchConstraints"]["resourceRules"][0], "scope": None}


@pytest.mark.parametrize("name", [SYSTEM_NAMESPACE, "kube-system", "kube-public", "kube-node-lease"])
def test_nothing_that_opts_in_concerns_a_system_namespace(name: str) -> None:
    """Whatever its labels: neither webhook nor policy stands in the way of the cluster's own pods, or of ours."""
    bindings = [
        each["spec"]["matchResources"]
        for (kind, _), each in POLICIES.items()
        if kind == "ValidatingAdmissionPolicyBinding" and "matchResources" in each["spec"]
    ]
    for selected in (*WEBHOOKS, DEBUG, *bindings):
        (excluded,) = (
            each["values"]
            for each in selected["namespaceSelector"]["matchExpressions"]
            if (each["key"], each["operator"]) == ("kubernetes.io/metadata.name", "NotIn")
        )
        assert name in excluded
    assert f"'{name}'" in expressions("tranche-creation")["isOptedIn"]


@pytest.mark.parametrize("guard", ["creation", "allocation-update", "allocation-binding", "resize"])
def test_what_the_scheduler_believes_is_guarded_in_every_namespace(guard: str) -> None:
    """It looks at pods wherever they are, so the guard selects nothing."""
    assert "matchResources" not in POLICIES["ValidatingAdmissionPolicyBinding", f"tranche-{guard}"]["spec"]


def test_every_way_to_write_a_pod_is_guarded() -> None:
    """The subresources by which metadata of a pod could come along."""
    rules = POLICIES["ValidatingAdmissionPolicy", "tranche-allocation-update"]["spec"]["matchConstraints"]
    assert set(rules["resourceRules"][0]["resources"]) == {
        "pods",
        "pods/status",
        "pods/ephemeralcontainers",
        "pods/resize",
    }
    rules = POLICIES["ValidatingAdmissionPolicy", "tranche-allocation-binding"]["spec"]["matchConstraints"]
    assert set(rules["resourceRules"][0]["resources"]) == {"pods/binding", "bindings"}


def test_entries_differ_only_in_whom_they_serve() -> None:
    """One webhook, two ways to opt in."""
    told = [
        {key: value for key, value in each.items() if key not in ("name", "namespaceSelector", "objectSelector")}
        for each in WEBHOOKS
    ]
    assert told[0] == told[1]
    assert {**DEBUG, **told[0]} == {**DEBUG, "rules": told[0]["rules"], "matchConditions": told[0]["matchConditions"]}
    assert (told[0]["failurePolicy"], told[0]["reinvocationPolicy"]) == ("Ignore", "IfNeeded")


def test_an_agents_leases_are_looked_at_where_its_role_reaches() -> None:
    """The policy that holds an agent to its node leaves the Leases of other namespaces alone."""
    binding = objects("identities.yaml")["ValidatingAdmissionPolicyBinding", "tranche-agent"]["spec"]
    assert binding["matchResources"] == {
        "namespaceSelector": {"matchLabels": {"kubernetes.io/metadata.name": SYSTEM_NAMESPACE}}
    }
    rights = objects("rbac/agent.yaml")
    assert rights["Role", "tranche-agent"]["metadata"]["namespace"] == SYSTEM_NAMESPACE
    assert not any("leases" in rule["resources"] for rule in rights["ClusterRole", "tranche-agent"]["rules"])


def test_rights_name_what_the_code_uses() -> None:
    """One Secret, one configuration."""
    rbac = objects("rbac/webhook.yaml")
    assert rbac["Role", "tranche-webhook"]["rules"][0]["resourceNames"] == [SECRET]
    assert rbac["ClusterRole", "tranche-webhook"]["rules"][0]["resourceNames"] == [CONFIGURATION]


def test_service_is_among_the_certificates_names() -> None:
    """The API server calls `<service>.<namespace>.svc`."""
    service = WEBHOOKS[0]["clientConfig"]["service"]
    assert f"{service['name']}.{service['namespace']}.svc" in WebhookSettings().dns_names


def test_the_canary_is_what_the_code_calls() -> None:
    """One object, dry runs only; its Service is the name that the webhook knows, and stands before the same pods."""
    assert ("ConfigMap", canary.CONFIG_MAP) in objects("webhook.yaml")
    assert objects("rbac/webhook.yaml")["Role", "tranche-webhook"]["rules"][1] == {
        "apiGroups": [""],
        "resources": ["configmaps"],
        "resourceNames": [canary.CONFIG_MAP],
        "verbs": ["patch"],
    }
    (condition,) = CANARY["matchConditions"]
    for part in ("request.dryRun", f"request.name == '{canary.CONFIG_MAP}'", f"'{names.CANARY}'"):
        assert part in condition["expression"]
    service = CANARY["clientConfig"]["service"]
    assert f"{service['name']}.{service['namespace']}.svc" == WebhookSettings().certificates.canary_name
    deployed = objects("deployments/webhook.yaml")
    assert deployed["Service", service["name"]]["spec"] == deployed["Service", "tranche-webhook"]["spec"]


def test_cert_manager_makes_a_certificate_for_every_name() -> None:
    """It is injected from the Certificate that the annotation names, and mounted where the webhook looks."""
    made = objects("../cert-manager/certificate.yaml")["Certificate", "tranche-webhook"]["spec"]
    assert tuple(made["dnsNames"]) == WebhookSettings().dns_names
    component = (BASE.parent / "cert-manager" / "kustomization.yaml").read_text()
    assert f"cert-manager.io/inject-ca-from: {SYSTEM_NAMESPACE}/tranche-webhook" in component
    assert f"secretName: {made['secretName']}" in component
    assert f"mountPath: {WebhookSettings().certificates.folder}" in component
    assert "--certificates-source=cert-manager" in component
