"""What the cluster brings: versions, our own parts, HAMi's, other people's."""

from pathlib import Path
from typing import Any

import msgspec
import pytest
import yaml

from cli.migration import installation
from cli.migration.planned import UNSERVED
from cli.migration.survey import Named, Policy, Rules, Unread, Version, WebhookConfiguration
from cluster.metadata import ObjectMeta
from cluster.resource_quota import ResourceQuota
from tests.cli.migration.surveys import about, hami_node, judged, namespace, workload
from webhook.settings import WebhookSettings

BASE = Path(__file__).parents[3] / "manifests" / "base"
ALIAS = Rules(webhook=WebhookSettings(aliases=("hami-scheduler",)))


def manifests() -> list[dict[str, Any]]:
    """Answer every object of manifests/base."""
    files = [*BASE.glob("*.yaml"), *BASE.glob("crds/*.yaml")]
    return [each for file in files for each in yaml.safe_load_all(file.read_text()) if each and "kind" in each]


def webhook(name: str, *hooks: str, resources: tuple[str, ...] = ("pods",)) -> WebhookConfiguration:
    """Answer a configuration that is asked about new pods."""
    rules = [{"resources": list(resources), "operations": ["CREATE"]}]
    hooked = [{"name": hook, "rules": rules} for hook in hooks]
    return msgspec.convert({"metadata": {"name": name}, "webhooks": hooked}, WebhookConfiguration)


def whole(**changed: Any) -> dict[str, Any]:
    """Answer the parts of an installed Tranche."""
    policies = [
        msgspec.convert({"metadata": {"name": each}, "spec": {"variables": []}}, Policy)
        for each in installation.POLICIES
    ]
    definitions = [Named(ObjectMeta(name=each)) for each in installation.DEFINITIONS]
    return {
        "policies": policies,
        "definitions": definitions,
        "webhooks": [webhook("tranche", "namespace.gpu.scheduling")],
        **changed,
    }


def plugin_of_hami(account: str = "hami-device-plugin") -> dict[str, Any]:
    """Answer HAMi's DaemonSet."""
    made = workload("DaemonSet", {"name": "main"}, name="hami-device-plugin", namespace="kube-system")
    made["spec"]["template"]["spec"]["serviceAccountName"] = account
    return made


def test_the_lists_of_our_parts_are_those_of_the_manifests() -> None:
    """A new policy or definition that is forgotten here would never be missed."""
    found = manifests()
    names = {
        kind: {each["metadata"]["name"] for each in found if each["kind"] == kind}
        for kind in ("ValidatingAdmissionPolicy", "CustomResourceDefinition")
    }
    # Who takes certificates from cert-manager has no Secret of ours to guard.
    assert names["ValidatingAdmissionPolicy"] - {"tranche-webhook-secret"} == {*installation.POLICIES}
    assert names["CustomResourceDefinition"] == {*installation.DEFINITIONS}
    (hooks,) = (each["webhooks"] for each in found if each["kind"] == "MutatingWebhookConfiguration")
    selectors = [
        rule["values"]
        for hook in hooks[:2]
        for rule in hook["namespaceSelector"]["matchExpressions"]
        if rule["key"] == "kubernetes.io/metadata.name"
    ]
    assert {tuple(each) for each in selectors} == {UNSERVED}


@pytest.mark.parametrize(
    ("version", "severity"),
    [(("1", "29"), "blocks"), (("1", "30+"), ""), (("1", "34"), ""), (("2", "0"), ""), (("one", "x"), "notes")],
)
def test_the_version_of_the_api_server(version: tuple[str, str], severity: str) -> None:
    """Policies need 1.30; distributions write a plus after the minor."""
    found = [each.severity for each in judged(version=Version(*version)).findings if "1.30" in str(each)]
    assert found == ([severity] if severity else [])


def test_nothing_parts_and_all_of_it() -> None:
    """Halves of an installation are in the way, none of it is not."""
    assert about(judged(), "nothing of Tranche is installed").severity == "notes"
    report = judged(**whole(policies=[]))
    assert "ValidatingAdmissionPolicy tranche-fence" in about(report, "installed in parts").what
    assert not report.is_clear
    assert judged(**whole()).findings == ()
    assert judged(**whole()).installed


def test_hamis_webhook_needs_the_alias() -> None:
    """It gives pods to a scheduler that can place none; with the alias it may stay until the end."""
    hami = webhook("hami-webhook", "vgpu.hami.io")
    assert "webhook.aliases: [hami-scheduler]" in about(judged(webhooks=[hami]), "hami-webhook").next_step
    assert about(judged(ALIAS, webhooks=[hami]), "hami-webhook").severity == "changes"
    assert not judged(webhooks=[hami]).is_clear


def test_other_webhooks_of_pods_are_noted() -> None:
    """Those of other kinds are not."""
    report = judged(webhooks=[webhook("istio", "a.istio.io"), webhook("nodes", "n.example", resources=("nodes",))])
    assert about(report, "another webhook changes new pods").objects == ("MutatingWebhookConfiguration istio",)


def test_hamis_scheduler_is_told_its_end() -> None:
    """From the installation on it places nothing."""
    made = workload(name="hami-scheduler", namespace="kube-system")
    made["spec"]["template"]["spec"]["containers"] = [{"name": "main"}]
    assert "scale it to 0" in about(judged(workloads=[made]), "HAMi's scheduler places no GPU pod").next_step


def test_hamis_plugin_must_be_trusted() -> None:
    """Where it serves nodes, the component for them is there and names its account."""
    hami = {"nodes": [hami_node()], "workloads": [plugin_of_hami()]}
    assert about(judged(**hami), "HAMi's plugin writes as").severity == "notes"
    assert about(judged(**whole(**hami)), "is not installed: no pod of ours").severity == "blocks"
    for trusted, blocks in (("hami-device-plugin", False), ("other", True)):
        variables = [{"name": "plugins", "expression": f"['system:serviceaccount:kube-system:{trusted}']"}]
        policies = [
            *(each for each in whole()["policies"] if each.metadata.name != "tranche-allocation-update"),
            msgspec.convert(
                {"metadata": {"name": "tranche-allocation-update"}, "spec": {"variables": variables}}, Policy
            ),
            msgspec.convert({"metadata": {"name": "tranche-node-lock"}}, Policy),
        ]
        report = judged(**whole(**hami, policies=policies))
        assert report.is_clear != blocks


def test_what_could_not_be_read_is_in_the_way() -> None:
    """Nobody is told that all is well who may not look; what may be missing is not called missing."""
    gaps = [Unread(what, f"forbidden to list {what}") for what in ("nodes", "validatingadmissionpolicies")]
    report = judged(**whole(policies=[], unread=gaps))
    assert not report.is_clear
    assert about(report, "forbidden to list nodes").severity == "blocks"
    assert not [each for each in report.findings if "installed in parts" in each.what]


def test_namespaces_that_have_not_opted_in() -> None:
    """The command that opts them in is the next step; the label may also say no."""
    report = judged(workloads=[workload()], namespaces=[namespace(x="y"), namespace("empty", x="y")])
    found = about(report, "has not opted in")
    assert found.objects == ("namespace team",)
    assert found.next_step == "kubectl label namespace team gpu.scheduling/injection=enabled --overwrite"
    said = judged(workloads=[workload()], namespaces=[namespace(**{"gpu.scheduling/injection": "disabled"})])
    assert "is 'disabled'" in about(said, "namespace team").what


def test_quotas_are_told_with_what_they_limit() -> None:
    """HAMi looks at two of the three, Kubernetes itself at requests."""
    hard = {"limits.nvidia.com/gpumem": "9k", "limits.nvidia.com/gpu": "2", "requests.nvidia.com/gpu": "3", "cpu": "4"}
    quota = msgspec.convert({"metadata": {"name": "q", "namespace": "team"}, "spec": {"hard": hard}}, ResourceQuota)
    report = judged(quotas=[quota])
    assert "nvidia.com/gpumem 9k, nvidia.com/gpu 2" in about(report, "ResourceQuotaNotFit").what
    assert about(report, "HAMi does not look at").severity == "changes"
    assert about(report, "Kubernetes' own").severity == "notes"
