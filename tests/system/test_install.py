"""The manifests of an installation, on a real API server."""

from __future__ import annotations

import json
import os
from typing import TYPE_CHECKING, Any

import pytest
import yaml

from allocation import names
from allocation.names import SYSTEM_NAMESPACE
from lab import kubectl, manifests
from lab.client import client
from lab.errors import LabError
from lab.manifests import ROOT
from webhook.settings import WebhookSettings

if TYPE_CHECKING:
    from pathlib import Path

    from lab.layout import Layout

pytestmark = pytest.mark.apiserver
PROCESSES = ("webhook", "scheduler", "agent")


def build(layout: Layout, folder: Path) -> dict[tuple[str, str], dict[str, Any]]:
    """Return the objects that kustomize builds from a folder, by kind and name."""
    objects = manifests.build(layout, folder)
    return {(each["kind"], each["metadata"]["name"]): each for each in objects}


@pytest.fixture(scope="module")
def installation(tranche: Layout) -> dict[tuple[str, str], dict[str, Any]]:
    """The objects that `kubectl apply -k manifests/install` applies."""
    return build(tranche, ROOT / "install")


def overlay(folder: Path, component: str) -> Path:
    """Write a kustomization of an installation with a component; return its folder."""
    above = os.path.relpath(ROOT, folder.resolve())
    content = {"resources": [f"{above}/install"], "components": [f"{above}/{component}"]}
    (folder / "kustomization.yaml").write_text(json.dumps(content))
    return folder


def template(installation: dict[tuple[str, str], dict[str, Any]], process: str) -> dict[str, Any]:
    """Return the pod template of a process."""
    kind = "DaemonSet" if process == "agent" else "Deployment"
    content: dict[str, Any] = installation[kind, f"tranche-{process}"]["spec"]["template"]
    return content


def create(layout: Layout, of: dict[str, Any]) -> None:
    """Create a pod of a template in the system namespace, as a dry run."""
    sent = {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "probe", **of["metadata"]}, "spec": of["spec"]}
    kubectl.run(layout, "-n", SYSTEM_NAMESPACE, "create", "--dry-run=server", "-f", "-", stdin=json.dumps(sent))


def test_installation_is_accepted(tranche: Layout) -> None:
    """An API server with the CRDs accepts every object."""
    output = kubectl.run(tranche, "apply", "--dry-run=server", "-k", str(ROOT / "install"))
    assert "deployment.apps/tranche-webhook" in output
    assert "daemonset.apps/tranche-agent" in output


@pytest.mark.parametrize("process", PROCESSES)
def test_every_process_passes_pod_security_restricted(
    tranche: Layout, installation: dict[tuple[str, str], dict[str, Any]], process: str
) -> None:
    """The system namespace enforces that level, so a pod that needed more would be rejected."""
    labels = client(tranche).get("namespace", SYSTEM_NAMESPACE)["metadata"]["labels"]
    assert labels["pod-security.kubernetes.io/enforce"] == "restricted"
    pod = template(installation, process)
    create(tranche, pod)
    for container in pod["spec"]["containers"]:
        assert container["securityContext"]["readOnlyRootFilesystem"]
    (tmp,) = (each["emptyDir"] for each in pod["spec"]["volumes"] if "emptyDir" in each)
    assert tmp["medium"] == "Memory"


@pytest.mark.parametrize("component", ["isolation", "delivery"])
def test_host_folders_loosen_pod_security(tranche: Layout, tmp_path: Path, component: str) -> None:
    """The hostPath of the component is rejected unless the component also loosens the namespace."""
    built = build(tranche, overlay(tmp_path, component))
    with pytest.raises(LabError, match='restricted volume type "hostPath"'):
        create(tranche, template(built, "agent"))
    labels = built["Namespace", SYSTEM_NAMESPACE]["metadata"]["labels"]
    assert labels["pod-security.kubernetes.io/enforce"] == "privileged"


def test_agent_needs_no_runtime_class_where_an_annotation_delivers(tranche: Layout, tmp_path: Path) -> None:
    """With the operator's NRI plugin RuntimeClass `nvidia` does not exist; the policies let the agent use the key."""
    built = build(tranche, overlay(tmp_path, "nvidia-nri"))
    agent = template(built, "agent")
    assert "runtimeClassName" not in agent["spec"]
    assert agent["spec"]["containers"][0]["command"][-1] == "--delivery=nvidia-nri"
    assert template(built, "webhook")["spec"]["containers"][0]["command"][-1] == "--runtime-class-name="
    (key,) = agent["metadata"]["annotations"]
    assert key == names.delivery_key(agent["spec"]["containers"][0]["name"])
    for policy in ("tranche-creation", "tranche-allocation-update"):
        variables = {each["name"]: each for each in built["ValidatingAdmissionPolicy", policy]["spec"]["variables"]}
        assert SYSTEM_NAMESPACE in variables["operatorNamespaces"]["expression"]
    create(tranche, agent)


def test_with_cert_manager_the_webhook_writes_nothing(tranche: Layout, tmp_path: Path) -> None:
    """The webhook has no right to Secrets or its configuration, and no canary; its certificate is mounted."""
    built = build(tranche, overlay(tmp_path, "cert-manager"))
    assert ("Role", "tranche-webhook") not in built
    assert ("RoleBinding", "tranche-webhook") not in built
    verbs = {verb for rule in built["ClusterRole", "tranche-webhook"]["rules"] for verb in rule["verbs"]}
    assert verbs == {"get", "list", "watch"}
    hook = built["MutatingWebhookConfiguration", "tranche"]
    certificate = built["Certificate", "tranche-webhook"]
    assert hook["metadata"]["annotations"]["cert-manager.io/inject-ca-from"] == f"{SYSTEM_NAMESPACE}/tranche-webhook"
    assert "canary.gpu.scheduling" not in {each["name"] for each in hook["webhooks"]}
    pod = template(built, "webhook")
    assert pod["spec"]["containers"][0]["args"] == ["--certificates-source=cert-manager"]
    (secret,) = (each["secret"]["secretName"] for each in pod["spec"]["volumes"] if "secret" in each)
    assert secret == certificate["spec"]["secretName"]
    create(tranche, pod)


def test_extender_component_passes_pod_security_restricted(tranche: Layout, tmp_path: Path) -> None:
    """What manifests/extender adds is accepted, and kube-scheduler reads the same file as in the tests."""
    folder = overlay(tmp_path, "extender")
    kubectl.run(tranche, "apply", "--dry-run=server", "-k", str(folder))
    built = build(tranche, folder)
    pod = template(built, "scheduler")
    create(tranche, pod)
    extender, kube_scheduler = pod["spec"]["containers"]
    assert "--extender" in extender["args"]
    (volume,) = (each for each in pod["spec"]["volumes"] if each["name"] == kube_scheduler["volumeMounts"][0]["name"])
    file = built["ConfigMap", volume["configMap"]["name"]]["data"]["config.yaml"]
    assert file == (ROOT / "extender" / "kube-scheduler.yaml").read_text()
    election = yaml.safe_load(file)["leaderElection"]
    assert f"--kube-scheduler-lease-name={election['resourceName']}" in extender["args"]
    assert f"--kube-scheduler-lease-namespace={election['resourceNamespace']}" in extender["args"]
    role = built["Role", "tranche-kube-scheduler"]["rules"]
    assert [rule["resourceNames"] for rule in role] == [[election["resourceName"]]]


def test_extender_mode_has_no_rights_for_volumes_of_its_own(tranche: Layout, tmp_path: Path) -> None:
    """kube-scheduler schedules and binds volumes there, with the rights that Kubernetes grants to it."""
    built = build(tranche, overlay(tmp_path, "extender"))
    assert ("ClusterRole", "tranche-scheduler-volumes") not in built
    assert ("ClusterRoleBinding", "tranche-scheduler-volumes") not in built
    assert built["ClusterRoleBinding", "tranche-volume-scheduler"]["roleRef"]["name"] == "system:volume-scheduler"
    resources = {name for rule in built["ClusterRole", "tranche-scheduler"]["rules"] for name in rule["resources"]}
    assert not resources & {"persistentvolumeclaims", "persistentvolumes", "storageclasses", "volumeattachments"}


def test_replicas_are_spread_and_protected_by_a_budget(installation: dict[tuple[str, str], dict[str, Any]]) -> None:
    """Draining a node does not interrupt admission or placement."""
    for process in ("webhook", "scheduler"):
        deployment = installation["Deployment", f"tranche-{process}"]["spec"]
        assert deployment["replicas"] == 2
        spread = deployment["template"]["spec"]["topologySpreadConstraints"]
        assert spread[0]["topologyKey"] == "kubernetes.io/hostname"
        budget = installation["PodDisruptionBudget", f"tranche-{process}"]["spec"]
        for selector in (deployment["selector"], budget["selector"], *(each["labelSelector"] for each in spread)):
            assert selector["matchLabels"] == deployment["template"]["metadata"]["labels"]
    service = installation["Service", "tranche-webhook"]
    assert service["spec"]["selector"] == template(installation, "webhook")["metadata"]["labels"]
    grace = template(installation, "webhook")["spec"]["terminationGracePeriodSeconds"]
    assert grace > WebhookSettings().drain_seconds


@pytest.mark.parametrize("process", PROCESSES)
def test_every_process_has_priority_requests_and_probes(
    installation: dict[tuple[str, str], dict[str, Any]], process: str
) -> None:
    """Each has a system priority class, resource requests, a memory limit and probes."""
    spec = template(installation, process)["spec"]
    assert spec["priorityClassName"] in ("system-cluster-critical", "system-node-critical")
    for container in spec["containers"]:
        assert set(container["resources"]["requests"]) == {"cpu", "memory"}
        assert "memory" in container["resources"]["limits"]
        assert {"readinessProbe", "livenessProbe"} <= set(container)


def test_network_policies_open_only_needed_ports(installation: dict[tuple[str, str], dict[str, Any]]) -> None:
    """Only reviews and the namespaced API are open to all; metrics are open to one namespace."""
    policies = {name: each["spec"] for (kind, name), each in installation.items() if kind == "NetworkPolicy"}
    assert policies["tranche-default"] == {"podSelector": {}, "policyTypes": ["Ingress"]}
    (reviews,) = policies["tranche-reviews"]["ingress"]
    assert reviews == {"ports": [{"protocol": "TCP", "port": WebhookSettings().port}]}
    (api,) = (
        port for port in template(installation, "scheduler")["spec"]["containers"][0]["ports"] if port["name"] == "api"
    )
    (namespaced,) = policies["tranche-scheduler-api"]["ingress"]
    assert namespaced == {"ports": [{"protocol": "TCP", "port": api["containerPort"]}]}
    for name, each in policies.items():
        for rule in each.get("ingress", ()):
            assert name in ("tranche-reviews", "tranche-scheduler-api") or rule["from"]
    for process in PROCESSES:
        served = {port["containerPort"] for port in template(installation, process)["spec"]["containers"][0]["ports"]}
        (metrics,) = policies["tranche-metrics"]["ingress"]
        known = {WebhookSettings().port, api["containerPort"], *(port["port"] for port in metrics["ports"])}
        assert served <= known
