"""The manifests of an installation, as a real API server takes them."""

from __future__ import annotations

import json
import os
from typing import TYPE_CHECKING, Any

import pytest
import yaml

from allocation.names import SYSTEM_NAMESPACE
from lab import kubectl
from lab.errors import LabError
from lab.manifests import ROOT
from webhook.settings import WebhookSettings

if TYPE_CHECKING:
    from pathlib import Path

    from lab.layout import Layout

pytestmark = [pytest.mark.apiserver, pytest.mark.timeout(180)]
PROCESSES = ("webhook", "scheduler", "agent")


def build(layout: Layout, folder: Path) -> dict[tuple[str, str], dict[str, Any]]:
    """Answer what kustomize makes of a folder, by kind and name."""
    found = yaml.safe_load_all(kubectl.run(layout, "kustomize", str(folder)))
    return {(each["kind"], each["metadata"]["name"]): each for each in found}


@pytest.fixture(scope="module")
def installation(tranche: Layout) -> dict[tuple[str, str], dict[str, Any]]:
    """What `kubectl apply -k manifests/install` applies."""
    return build(tranche, ROOT / "install")


def overlay(folder: Path, component: str) -> Path:
    """Write a kustomization of an installation with a component; answer its folder."""
    above = os.path.relpath(ROOT, folder.resolve())
    content = {"resources": [f"{above}/install"], "components": [f"{above}/{component}"]}
    (folder / "kustomization.yaml").write_text(json.dumps(content))
    return folder


def template(installation: dict[tuple[str, str], dict[str, Any]], process: str) -> dict[str, Any]:
    """Answer the pod template of a process."""
    kind = "DaemonSet" if process == "agent" else "Deployment"
    found: dict[str, Any] = installation[kind, f"tranche-{process}"]["spec"]["template"]
    return found


def create(layout: Layout, of: dict[str, Any]) -> None:
    """Have the API server admit a pod of a template into the namespace of our own objects, without keeping it."""
    sent = {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "probe", **of["metadata"]}, "spec": of["spec"]}
    kubectl.run(layout, "-n", SYSTEM_NAMESPACE, "create", "--dry-run=server", "-f", "-", stdin=json.dumps(sent))


def test_an_installation_is_accepted(tranche: Layout) -> None:
    """Every object of it, by an API server that has the definitions."""
    told = kubectl.run(tranche, "apply", "--dry-run=server", "-k", str(ROOT / "install"))
    assert "deployment.apps/tranche-webhook" in told
    assert "daemonset.apps/tranche-agent" in told


@pytest.mark.parametrize("process", PROCESSES)
def test_every_process_keeps_the_strictest_rule(
    tranche: Layout, installation: dict[tuple[str, str], dict[str, Any]], process: str
) -> None:
    """The namespace enforces it, so a pod that asked for more would not be created."""
    labels = kubectl.get(tranche, "namespace", SYSTEM_NAMESPACE)["metadata"]["labels"]
    assert labels["pod-security.kubernetes.io/enforce"] == "restricted"
    found = template(installation, process)
    create(tranche, found)
    for container in found["spec"]["containers"]:
        assert container["securityContext"]["readOnlyRootFilesystem"]
    (tmp,) = (each["emptyDir"] for each in found["spec"]["volumes"] if "emptyDir" in each)
    assert tmp["medium"] == "Memory"


def test_a_host_path_needs_the_namespace_to_be_opened(tranche: Layout, tmp_path: Path) -> None:
    """What manifests/isolation adds is refused where it has not loosened the namespace as well."""
    built = build(tranche, overlay(tmp_path, "isolation"))
    with pytest.raises(LabError, match='restricted volume type "hostPath"'):
        create(tranche, template(built, "agent"))
    labels = built["Namespace", SYSTEM_NAMESPACE]["metadata"]["labels"]
    assert labels["pod-security.kubernetes.io/enforce"] == "privileged"


def test_with_cert_manager_the_webhook_writes_nothing(tranche: Layout, tmp_path: Path) -> None:
    """No right to Secrets, none to write its configuration, no canary; its certificate is mounted and injected."""
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
    assert pod["spec"]["containers"][0]["command"] == ["tranche-webhook", "--certificates-source=cert-manager"]
    (secret,) = (each["secret"]["secretName"] for each in pod["spec"]["volumes"] if "secret" in each)
    assert secret == certificate["spec"]["secretName"]
    create(tranche, pod)


def test_a_pair_keeps_the_strictest_rule(tranche: Layout, tmp_path: Path) -> None:
    """What manifests/extender adds is accepted, and kube-scheduler reads the file that the tests run with."""
    folder = overlay(tmp_path, "extender")
    kubectl.run(tranche, "apply", "--dry-run=server", "-k", str(folder))
    built = build(tranche, folder)
    found = template(built, "scheduler")
    create(tranche, found)
    ours, theirs = found["spec"]["containers"]
    assert "--extender" in ours["args"]
    (volume,) = (each for each in found["spec"]["volumes"] if each["name"] == theirs["volumeMounts"][0]["name"])
    file = built["ConfigMap", volume["configMap"]["name"]]["data"]["config.yaml"]
    assert file == (ROOT / "extender" / "kube-scheduler.yaml").read_text()
    election = yaml.safe_load(file)["leaderElection"]
    assert f"--kube-scheduler-lease-name={election['resourceName']}" in ours["args"]
    assert f"--kube-scheduler-lease-namespace={election['resourceNamespace']}" in ours["args"]
    role = built["Role", "tranche-kube-scheduler"]["rules"]
    assert [rule["resourceNames"] for rule in role] == [[election["resourceName"]]]


def test_replicas_are_apart_and_one_stays(installation: dict[tuple[str, str], dict[str, Any]]) -> None:
    """A drained node does not take admission or placement away."""
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
def test_no_process_is_the_first_to_go(installation: dict[tuple[str, str], dict[str, Any]], process: str) -> None:
    """It has a system component's priority, asks for what it needs, and is held to a limit of memory."""
    spec = template(installation, process)["spec"]
    assert spec["priorityClassName"] in ("system-cluster-critical", "system-node-critical")
    for container in spec["containers"]:
        assert set(container["resources"]["requests"]) == {"cpu", "memory"}
        assert "memory" in container["resources"]["limits"]
        assert {"readinessProbe", "livenessProbe"} <= set(container)


def test_only_what_is_called_can_be_reached(installation: dict[tuple[str, str], dict[str, Any]]) -> None:
    """Everything is closed to the network but reviews for all, and metrics for the monitoring namespace."""
    policies = {name: each["spec"] for (kind, name), each in installation.items() if kind == "NetworkPolicy"}
    assert policies["tranche-default"] == {"podSelector": {}, "policyTypes": ["Ingress"]}
    (reviews,) = policies["tranche-reviews"]["ingress"]
    assert reviews == {"ports": [{"protocol": "TCP", "port": WebhookSettings().port}]}
    for name, each in policies.items():
        for rule in each.get("ingress", ()):
            assert name == "tranche-reviews" or rule["from"]
    for process in PROCESSES:
        served = {port["containerPort"] for port in template(installation, process)["spec"]["containers"][0]["ports"]}
        (metrics,) = policies["tranche-metrics"]["ingress"]
        assert served <= {WebhookSettings().port, *(port["port"] for port in metrics["ports"])}
