"""Findings about the cluster: its version, our parts, HAMi's parts and other webhooks."""

from pathlib import Path
from typing import Any

import msgspec
import pytest
import yaml

from allocation.inventory import NodeInventory
from cli.installation.method import Method
from cli.installation.rules import Rules
from cli.liveness.liveness import Liveness, Part
from cli.preflight import installation
from cli.preflight.cluster_snapshot import AdmissionPolicy, NamedObject, Unread, WebhookConfiguration
from cluster.gpu_node_status import GpuNodeStatus, status_of
from cluster.metadata import ObjectMeta
from cluster.resource_quota import ResourceQuota
from cluster.server_version import ServerVersion
from tests.cli.preflight.snapshots import about, hami_node, lease, namespace, node, report_on, status, workload
from webhook.settings import WebhookSettings

BASE = Path(__file__).parents[3] / "manifests" / "base"
ALIAS = Rules(webhook=WebhookSettings(aliases=("hami-scheduler",)))


def manifests() -> list[dict[str, Any]]:
    """Return every object of manifests/base."""
    files = [*BASE.glob("*.yaml"), *BASE.glob("crds/*.yaml")]
    return [each for file in files for each in yaml.safe_load_all(file.read_text()) if each and "kind" in each]


def webhook(name: str, *hooks: str, resources: tuple[str, ...] = ("pods",)) -> WebhookConfiguration:
    """Return a configuration that is called for new pods."""
    rules = [{"resources": list(resources), "operations": ["CREATE"]}]
    hooked = [{"name": hook, "rules": rules} for hook in hooks]
    return msgspec.convert({"metadata": {"name": name}, "webhooks": hooked}, WebhookConfiguration)


def installed(**changed: Any) -> dict[str, Any]:
    """Return the snapshot of a cluster with all parts of Tranche installed."""
    policies = [
        msgspec.convert({"metadata": {"name": each}, "spec": {"variables": []}}, AdmissionPolicy)
        for each in installation.POLICIES
    ]
    definitions = [NamedObject(ObjectMeta(name=each)) for each in installation.DEFINITIONS]
    return {
        "policies": policies,
        "definitions": definitions,
        "webhooks": [webhook("tranche", "namespace.gpu.scheduling")],
        **changed,
    }


def plugin_of_hami(account: str = "hami-device-plugin") -> dict[str, Any]:
    """Return HAMi's DaemonSet."""
    made = workload("DaemonSet", {"name": "main"}, name="hami-device-plugin", namespace="kube-system")
    made["spec"]["template"]["spec"]["serviceAccountName"] = account
    return made


def test_the_lists_of_parts_match_the_manifests() -> None:
    """A new policy or definition that is not listed would never be reported as missing."""
    found = manifests()
    names = {
        kind: {each["metadata"]["name"] for each in found if each["kind"] == kind}
        for kind in ("ValidatingAdmissionPolicy", "CustomResourceDefinition")
    }
    # An overlay with cert-manager has no Secret with our CA, and omits its policy.
    assert names["ValidatingAdmissionPolicy"] - {"tranche-webhook-secret"} == {*installation.POLICIES}
    assert names["CustomResourceDefinition"] == {*installation.DEFINITIONS}
    (hooks,) = (each["webhooks"] for each in found if each["kind"] == "MutatingWebhookConfiguration")
    selectors = [
        rule["values"]
        for hook in hooks[:2]
        for rule in hook["namespaceSelector"]["matchExpressions"]
        if rule["key"] == "kubernetes.io/metadata.name"
    ]
    assert {tuple(each) for each in selectors} == {WebhookSettings().excluded_namespaces}


@pytest.mark.parametrize(
    ("version", "severity"),
    [(("1", "29"), "blocks"), (("1", "30+"), ""), (("1", "34"), ""), (("2", "0"), ""), (("one", "x"), "notes")],
)
def test_an_api_server_before_1_30_blocks(version: tuple[str, str], severity: str) -> None:
    """Policies require 1.30; some distributions append a plus to the minor version."""
    found = [each.severity for each in report_on(version=ServerVersion(*version)).findings if "1.30" in str(each)]
    assert found == ([severity] if severity else [])


def test_a_partial_installation_blocks() -> None:
    """A missing installation is only a note, and a complete one is not mentioned."""
    assert about(report_on(), "nothing of Tranche is installed").severity == "notes"
    report = report_on(**installed(policies=[]))
    assert "ValidatingAdmissionPolicy tranche-fence" in about(report, "only partly installed").what
    assert not report.is_clear
    complete = report_on(**installed(nodes=[node()], statuses=[status()], leases=[lease()]))
    assert (complete.findings, complete.installed) == ((), True)


def test_the_next_step_fits_the_installation() -> None:
    """A release of Helm is upgraded with a value, where an overlay gets a component."""
    helm = Rules(method=Method("tranche", "tranche-system"))
    upgrade = "helm upgrade tranche CHART --namespace tranche-system --reset-then-reuse-values"
    hami = {"nodes": [hami_node()]}
    for rules, partly, component in (
        (Rules(), "apply your overlay of manifests/install again", "add the component manifests/hami-nodes"),
        (helm, upgrade, f"{upgrade} --set hamiNodes.enabled=true"),
    ):
        assert about(report_on(rules, **installed(policies=[])), "partly installed").next_step.startswith(partly)
        found = about(report_on(rules, **installed(**hami)), "is not installed: Tranche places no pod")
        assert found.next_step.startswith(component)


def test_an_installation_without_a_card_is_not_clear() -> None:
    """Nothing is placed without cards, so "0 things to do" would be false; before an installation it is a note."""
    empty = GpuNodeStatus(ObjectMeta(name="n1"), status_of(NodeInventory("n1", ())))
    for nodes, statuses in (([], []), ([node()], [empty])):
        report = report_on(**installed(nodes=nodes, statuses=statuses, leases=[lease()]))
        assert "kubectl label node NODE gpu=on" in about(report, "no node has a card").next_step
        assert not report.is_clear
    assert about(report_on(), "no node shows a sign of a GPU").severity == "notes"
    assert not [each for each in report_on(nodes=[hami_node()]).findings if "sign of a GPU" in each.what]


def test_missing_cards_are_not_reported_where_they_cannot_be_known() -> None:
    """What could not be read, or that agents report nothing, is a finding already."""
    for kind in ("nodes", "gpunodestatuses"):
        report = report_on(**installed(unread=[Unread(kind, "forbidden")]))
        assert not [each for each in report.findings if "no node has a card" in each.what]
    silent = Part("agents", "broken", "DaemonSet", "no node has reported cards", "look", stops=True)
    report = report_on(**installed(liveness=Liveness(installed=True, parts=(silent,))))
    assert not [each for each in report.findings if "no node has a card" in each.what]


def test_hamis_webhook_needs_the_alias() -> None:
    """Without the alias it assigns pods to a scheduler that places none; with it the webhook may stay."""
    hami = webhook("hami-webhook", "vgpu.hami.io")
    assert "webhook.aliases: [hami-scheduler]" in about(report_on(webhooks=[hami]), "hami-webhook").next_step
    assert about(report_on(ALIAS, webhooks=[hami]), "hami-webhook").severity == "changes"
    assert not report_on(webhooks=[hami]).is_clear


def test_other_webhooks_of_pods_are_noted() -> None:
    """Webhooks for other kinds are not."""
    report = report_on(webhooks=[webhook("istio", "a.istio.io"), webhook("nodes", "n.example", resources=("nodes",))])
    assert about(report, "another webhook changes new pods").objects == ("MutatingWebhookConfiguration istio",)


def test_hamis_scheduler_is_to_be_scaled_down() -> None:
    """It places nothing once Tranche is installed."""
    made = workload(name="hami-scheduler", namespace="kube-system")
    made["spec"]["template"]["spec"]["containers"] = [{"name": "main"}]
    assert "scale it to 0" in about(report_on(workloads=[made]), "HAMi's scheduler places no GPU pod").next_step


def test_hamis_plugin_must_be_trusted() -> None:
    """If it serves nodes, the component manifests/hami-nodes must be installed and name its account."""
    hami = {"nodes": [hami_node()], "workloads": [plugin_of_hami()]}
    assert about(report_on(**hami), "HAMi's plugin writes as").severity == "notes"
    assert about(report_on(**installed(**hami)), "is not installed: Tranche places no pod").severity == "blocks"
    for trusted, blocks in (("hami-device-plugin", False), ("other", True)):
        variables = [{"name": "plugins", "expression": f"['system:serviceaccount:kube-system:{trusted}']"}]
        policies = [
            *(each for each in installed()["policies"] if each.metadata.name != "tranche-allocation-update"),
            msgspec.convert(
                {"metadata": {"name": "tranche-allocation-update"}, "spec": {"variables": variables}}, AdmissionPolicy
            ),
            msgspec.convert({"metadata": {"name": "tranche-node-lock"}}, AdmissionPolicy),
        ]
        report = report_on(**installed(**hami, policies=policies))
        assert report.is_clear != blocks


def test_objects_that_could_not_be_read_block() -> None:
    """A report without the right to read is never clear, and does not call unread parts missing."""
    gaps = [Unread(what, f"forbidden to list {what}") for what in ("nodes", "validatingadmissionpolicies")]
    report = report_on(**installed(policies=[], unread=gaps))
    assert not report.is_clear
    assert about(report, "forbidden to list nodes").severity == "blocks"
    assert not [each for each in report.findings if "only partly installed" in each.what]


def test_namespaces_without_the_opt_in_label_are_reported() -> None:
    """The next step is the command that opts them in, also for a namespace whose label opts it out."""
    report = report_on(workloads=[workload()], namespaces=[namespace(x="y"), namespace("empty", x="y")])
    found = about(report, "has not opted in")
    assert found.objects == ("namespace team",)
    assert found.next_step == "kubectl label namespace team gpu.scheduling/injection=enabled --overwrite"
    opted_out = report_on(workloads=[workload()], namespaces=[namespace(**{"gpu.scheduling/injection": "disabled"})])
    assert "is 'disabled'" in about(opted_out, "namespace team").what


def test_quotas_are_reported_with_their_effect() -> None:
    """HAMi looks at two of the three limits, and Kubernetes itself at requests."""
    hard = {"limits.nvidia.com/gpumem": "9k", "limits.nvidia.com/gpu": "2", "requests.nvidia.com/gpu": "3", "cpu": "4"}
    quota = msgspec.convert({"metadata": {"name": "q", "namespace": "team"}, "spec": {"hard": hard}}, ResourceQuota)
    report = report_on(quotas=[quota])
    assert "nvidia.com/gpumem 9k, nvidia.com/gpu 2" in about(report, "ResourceQuotaNotFit").what
    assert about(report, "HAMi does not look at").severity == "changes"
    assert about(report, "Kubernetes' own").severity == "notes"
