"""The manifests agree with the code where both state the same facts."""

import re
from pathlib import Path
from typing import Any

import pytest
import yaml

from allocation import names
from allocation.isolation import Isolation
from allocation.names import SYSTEM_NAMESPACE
from allocation.settings import ResourceNames
from allocation.variables import TABLE, Ruling
from allocation.wire import environment
from certs import canary
from certs.authority_secret import SECRET
from certs.ca_bundle import CONFIGURATION
from webhook import pod_templates
from webhook.review import GroupVersionKind
from webhook.settings import WebhookSettings

BASE = Path(__file__).parents[2] / "manifests" / "base"


def objects(file: str) -> dict[tuple[str, str], dict[str, Any]]:
    """Return the objects of a manifest by kind and name."""
    documents = yaml.safe_load_all((BASE / file).read_text())
    return {(each["kind"], each["metadata"]["name"]): each for each in documents}


POLICIES = objects("policies.yaml") | objects("policies-lifetime.yaml")
*WEBHOOKS, DEBUG, CANARY = objects("webhook.yaml")["MutatingWebhookConfiguration", CONFIGURATION]["webhooks"]
(ADDED,) = yaml.safe_load((BASE.parent / "complete-templates" / "entry.yaml").read_text())
TEMPLATES = ADDED["value"]
OUTPUT_KEYS = (
    *(names.ALLOCATION, names.ALLOCATED, names.LEADER),
    *(f"'{prefix}'" for prefix in names.OUTPUT_PREFIXES),
    f"'.{names.ENVIRONMENT_DOMAIN}/'",
)


def expressions(policy: str) -> dict[str, str]:
    """Return the named expressions of a policy."""
    spec = POLICIES["ValidatingAdmissionPolicy", policy]["spec"]
    return {each["name"]: each["expression"] for each in (*spec.get("matchConditions", ()), *spec.get("variables", ()))}


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
    """A key that the ledger trusts but a policy does not guard could be forged."""
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
    """Each resource that the scheduler reads must be in the expressions, or its pods would bypass them."""
    assert [name for name in ResourceNames().gpu_resources() if f"'{name}'" not in expression] == []


@pytest.mark.parametrize("policy", ["tranche-creation", "tranche-debug"])
def test_policy_requires_the_variables_of_every_container(policy: str) -> None:
    """The policy requires the variables that every container has, whatever its number of cards."""
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
def test_policy_has_every_variable_that_we_set(expression: str) -> None:
    """The policy refuses the variables that the webhook would have replaced."""
    assert "variables.required" in expression
    others = [
        row.name for row in TABLE if row.ruling is Ruling.SET and row.name not in environment.references("main", 0)
    ]
    assert [name for name in others if f"'{name.rstrip('*')}'" not in expression] == []


@pytest.mark.parametrize("isolation", list(Isolation))
def test_policy_requires_the_variables_of_an_isolation(isolation: Isolation) -> None:
    """Without the webhook, a pod that chose an isolation has its variables by reference or is refused."""
    own = environment.references("main", 0, isolation=isolation).keys() - environment.references("main", 0).keys()
    found = re.search(rf"'{isolation}' \? \[([^]]*)\]", expressions("tranche-creation")["required"])
    assert set(re.findall(r"'(\w+)'", found[1] if found else "")) == own


def test_policy_and_webhook_allow_the_same_isolations() -> None:
    """A pod that the webhook does not review has no more choice; the empty text stands for one that chose none."""
    allowed = expressions("tranche-creation")["allowedIsolations"]
    assert re.findall(r"'([\w-]*)'", allowed) == ["", *WebhookSettings().allowed_isolations]


@pytest.mark.parametrize("policy", ["tranche-creation", "tranche-debug"])
def test_policy_has_every_variable_that_is_removed(policy: str) -> None:
    """The policy has exactly the variables of the table, each by its name or its prefix."""
    meddling = expressions(policy)["meddling"]
    removed = [row.name for row in TABLE if row.ruling in (Ruling.REMOVED, Ruling.BY_ISOLATION)]
    assert set(re.findall(r"startsWith\('(\w+)'\)", meddling)) == {n.rstrip("*") for n in removed if n.endswith("*")}
    rest = re.sub(r"startsWith\('\w+'\)", "", meddling)
    assert set(re.findall(r"'(\w+)'", rest)) == {name for name in removed if not name.endswith("*")}


@pytest.mark.parametrize(
    "expression",
    [
        expressions("tranche-creation")["concerns-gpus"],
        expressions("tranche-creation")["delivered"],
        expressions("tranche-allocation-update")["changed"],
        expressions("tranche-allocation-binding")["carried"],
    ],
)
def test_every_key_of_a_runtimes_plugin_is_guarded(expression: str) -> None:
    """The keys are guarded at creation, in updates and in Bindings."""
    assert [key for key in (*names.DELIVERY_DOMAINS, names.DELIVERY_PREFIX) if f"'{key}'" not in expression] == []


def test_pods_that_are_left_out_chose_an_allowed_isolation() -> None:
    """The match condition leaves prepared pods out, by the list of the rules that it spares them."""
    spared = re.search(
        r"gpu.scheduling/isolation'\].orValue\(''\) in\s*(\[[^]]*\])", expressions("tranche-creation")["concerns-gpus"]
    )
    assert spared is not None
    assert spared[1] == expressions("tranche-creation")["allowedIsolations"]


def test_pods_that_are_left_out_set_no_variable_that_is_ours() -> None:
    """Every variable that a user may not set is in doubt, so the rules decide on its pod."""
    doubtful = tuple(re.findall(r"startsWith\('([A-Z]+_)'\)", expressions("tranche-creation")["concerns-gpus"]))
    assert [row.name for row in TABLE if row.ruling is not Ruling.ADMITTED and not row.name.startswith(doubtful)] == []
    (excepted,) = set(re.findall(r"e.name == '(\w+)' \|\|", expressions("tranche-creation")["concerns-gpus"]))
    assert [row.ruling for row in TABLE if row.name == excepted] == [Ruling.ADMITTED]


def test_policies_agree_on_what_asks_for_a_gpu() -> None:
    """The label of a namespace holds for the containers that get cards."""
    (validation,) = POLICIES["ValidatingAdmissionPolicy", "tranche-isolation"]["spec"]["validations"]
    asks = expressions("tranche-creation")["gpuContainers"].partition("filter(c, ")[2]
    assert validation["expression"].partition("exists(c, ")[2] == asks


@pytest.mark.parametrize("policy", ["tranche-creation", "tranche-debug"])
def test_policy_and_webhook_refuse_the_same_capabilities(policy: str) -> None:
    """The capabilities that are equivalent to privileged."""
    privileged = expressions(policy)["privileged"]
    assert set(re.findall(r"'([A-Z_]+)'", privileged)) == {"SYS_ADMIN", "CAP_SYS_ADMIN", "ALL"}
    assert "upperAscii" in privileged


def test_policy_and_webhook_trust_the_same_users() -> None:
    """Both have the same default users for static allocations."""
    trusted = expressions("tranche-creation")["isTrusted"]
    assert [name for name in WebhookSettings().trusted if f"'{name}'" not in trusted] == []


def test_webhook_and_policy_cover_the_same_debug_containers() -> None:
    """Both select pods by the spec alone, because labels can change."""
    policy = POLICIES["ValidatingAdmissionPolicy", "tranche-debug"]["spec"]
    binding = POLICIES["ValidatingAdmissionPolicyBinding", "tranche-debug"]["spec"]
    assert DEBUG["matchConditions"] == policy["matchConditions"]
    assert DEBUG["namespaceSelector"] == binding["matchResources"]["namespaceSelector"]
    assert "objectSelector" not in DEBUG
    assert {**DEBUG["rules"][0], "scope": None} == {**policy["matchConstraints"]["resourceRules"][0], "scope": None}


@pytest.mark.parametrize("name", [SYSTEM_NAMESPACE, "kube-system", "kube-public", "kube-node-lease"])
def test_system_namespaces_are_excluded(name: str) -> None:
    """Whatever its labels, neither webhook nor policies affect the cluster's own pods or ours."""
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


@pytest.mark.parametrize(
    "guard", ["creation", "allocation-update", "allocation-binding", "resize", "deletion", "phase"]
)
def test_trusted_annotations_are_guarded_in_every_namespace(guard: str) -> None:
    """The scheduler reads pods of all namespaces, so the guard does not select any."""
    assert "matchResources" not in POLICIES["ValidatingAdmissionPolicyBinding", f"tranche-{guard}"]["spec"]


def test_every_subresource_that_writes_metadata_is_guarded() -> None:
    """The rules have every subresource that can change a pod's metadata."""
    rules = POLICIES["ValidatingAdmissionPolicy", "tranche-allocation-update"]["spec"]["matchConstraints"]
    assert set(rules["resourceRules"][0]["resources"]) == {
        "pods",
        "pods/status",
        "pods/ephemeralcontainers",
        "pods/resize",
    }
    rules = POLICIES["ValidatingAdmissionPolicy", "tranche-allocation-binding"]["spec"]["matchConstraints"]
    assert set(rules["resourceRules"][0]["resources"]) == {"pods/binding", "bindings"}


@pytest.mark.parametrize(("policy", "condition"), [("tranche-deletion", "holds-cards"), ("tranche-phase", "has-cards")])
def test_every_allocation_that_counts_is_guarded(policy: str, condition: str) -> None:
    """A restarted scheduler recognises a pod with cards by these annotations, ours and HAMi's."""
    expression = expressions(policy)[condition]
    assert [key for key in (names.ALLOCATION, names.HAMI_ALLOCATED) if f"'{key}'" not in expression] == []


def test_entries_differ_only_in_their_selectors() -> None:
    """The webhook has two entries, for opted-in namespaces and for opted-in pods."""
    entries = [
        {key: value for key, value in each.items() if key not in ("name", "namespaceSelector", "objectSelector")}
        for each in WEBHOOKS
    ]
    assert entries[0] == entries[1]
    assert {**DEBUG, **entries[0]} == {
        **DEBUG,
        "rules": entries[0]["rules"],
        "matchConditions": entries[0]["matchConditions"],
    }
    assert (entries[0]["failurePolicy"], entries[0]["reinvocationPolicy"]) == ("Ignore", "IfNeeded")


def test_templates_and_their_pods_have_the_same_condition() -> None:
    """Where only one of the two matched, a template would say something else than its pods get."""
    of_templates = " ".join(TEMPLATES["matchConditions"][0]["expression"].split())
    of_pods = " ".join(WEBHOOKS[0]["matchConditions"][0]["expression"].split())
    _, inner = of_templates.replace("has(t.metadata) && ", "").split(".exists(t, ", maxsplit=1)
    assert inner == f"{of_pods.replace('object.', 't.')})"


def test_templates_never_depend_on_the_webhook() -> None:
    """Their entry is for namespaces that opted in, and is ignored while the webhook does not respond."""
    of_pods = WEBHOOKS[0]
    assert TEMPLATES["failurePolicy"] == "Ignore"
    for field in ("namespaceSelector", "clientConfig", "sideEffects", "reinvocationPolicy", "timeoutSeconds"):
        assert TEMPLATES[field] == of_pods[field]


def test_templates_are_sent_for_the_kinds_that_admission_completes() -> None:
    """At their creation alone: an update by the user, or by Kueue, is not changed."""
    kinds = {"jobs": "Job", "deployments": "Deployment", "jobsets": "JobSet"}
    rules = TEMPLATES["rules"]
    assert {kinds[resource] for rule in rules for resource in rule["resources"]} == {*kinds.values()}
    for rule in rules:
        ((group,), (resource,)) = rule["apiGroups"], rule["resources"]
        assert pod_templates.are_in(GroupVersionKind(group=group, kind=kinds[resource]))
        assert rule["operations"] == ["CREATE"]


def test_lease_policy_covers_the_namespace_of_the_agents_role() -> None:
    """The policy that restricts an agent to its node does not affect Leases of other namespaces."""
    binding = objects("identities.yaml")["ValidatingAdmissionPolicyBinding", "tranche-agent"]["spec"]
    assert binding["matchResources"] == {
        "namespaceSelector": {"matchLabels": {"kubernetes.io/metadata.name": SYSTEM_NAMESPACE}}
    }
    rights = objects("rbac/agent.yaml")
    assert rights["Role", "tranche-agent"]["metadata"]["namespace"] == SYSTEM_NAMESPACE
    assert not any("leases" in rule["resources"] for rule in rights["ClusterRole", "tranche-agent"]["rules"])


def test_roles_name_the_objects_that_the_code_uses() -> None:
    """The webhook's roles name one Secret and one configuration."""
    rbac = objects("rbac/webhook.yaml")
    assert rbac["Role", "tranche-webhook"]["rules"][0]["resourceNames"] == [SECRET]
    assert rbac["ClusterRole", "tranche-webhook"]["rules"][0]["resourceNames"] == [CONFIGURATION]


def test_service_is_among_the_certificates_names() -> None:
    """The API server verifies the name `<service>.<namespace>.svc`."""
    service = WEBHOOKS[0]["clientConfig"]["service"]
    assert f"{service['name']}.{service['namespace']}.svc" in WebhookSettings().dns_names


def test_manifests_have_the_canary_that_the_code_calls() -> None:
    """The manifests select one object in dry runs, and a Service with the canary name and the webhook's pods."""
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


def test_cert_manager_certificate_has_every_name() -> None:
    """The annotation names the Certificate, whose Secret is mounted in the webhook's folder."""
    made = objects("../cert-manager/certificate.yaml")["Certificate", "tranche-webhook"]["spec"]
    assert tuple(made["dnsNames"]) == WebhookSettings().dns_names
    component = (BASE.parent / "cert-manager" / "kustomization.yaml").read_text()
    assert f"cert-manager.io/inject-ca-from: {SYSTEM_NAMESPACE}/tranche-webhook" in component
    assert f"secretName: {made['secretName']}" in component
    assert f"mountPath: {WebhookSettings().certificates.folder}" in component
    assert "--certificates-source=cert-manager" in component
