"""charts/gpu-scheduler installs Tranche under the names that ziwon's gpu-scheduler has, and takes its values."""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any

import pytest
import yaml

from lab.image import build
from tests.charts.conftest import CHART, GPU_SCHEDULER

pytestmark = pytest.mark.helm
Render = Callable[..., dict[tuple[str, str, str], dict[str, Any]]]
NAME = "gpu-scheduler"
BUNDLE = "Y2VydGlmaWNhdGU="
# Every value of ziwon's chart, with another value than its default here.
ZIWONS_VALUES = {
    "image.repository": "registry.example.com/tranche",
    "image.tag": "v9",
    "image.pullPolicy": "Always",
    "webhook.image.repository": "registry.example.com/webhook",
    "webhook.image.tag": "v8",
    "webhook.image.pullPolicy": "Never",
    "webhook.caBundle": BUNDLE,
    "webhook.excludeNamespaces": "{infra}",
    "webhook.excludeOwnNamespace": "true",
    "agent.image.repository": "registry.example.com/agent",
    "agent.image.tag": "v7",
    "agent.image.pullPolicy": "IfNotPresent",
    "serviceAccountName": "other",
    "crds.install": "false",
}


def entries(objects: dict[tuple[str, str, str], dict[str, Any]]) -> dict[str, dict[str, Any]]:
    """Return the entries of the webhook configuration by name."""
    return {each["name"]: each for each in objects["MutatingWebhookConfiguration", "", "tranche"]["webhooks"]}


def policy(objects: dict[tuple[str, str, str], dict[str, Any]], name: str) -> dict[str, str]:
    """Return the expressions of a policy's variables and match conditions by name."""
    spec = objects["ValidatingAdmissionPolicy", "", name]["spec"]
    return {each["name"]: each["expression"] for each in (*spec["variables"], *spec["matchConditions"])}


@pytest.mark.parametrize("value", ZIWONS_VALUES)
def test_every_value_of_ziwons_chart_has_an_effect(value: str, render_gpu_scheduler: Render) -> None:
    """A values file of that chart is neither refused nor ignored."""
    assert render_gpu_scheduler(f"{value}={ZIWONS_VALUES[value]}") != render_gpu_scheduler()


def test_crds_can_be_left_out(render_gpu_scheduler: Render) -> None:
    """`crds.install=false` renders none, unlike in ziwon's chart."""
    counts = [
        sum(kind == "CustomResourceDefinition" for kind, _, _ in render_gpu_scheduler(*values))
        for values in ((), ("crds.install=false",))
    ]
    assert counts[0] > 0
    assert counts[1] == 0


def test_component_and_chart_create_the_same_objects(render_gpu_scheduler: Render, kustomize: Render) -> None:
    """The kustomize component changes what the chart changes, field by field."""
    rendered = render_gpu_scheduler("serviceAccountName=tranche-scheduler")
    built = kustomize("install", components=("gpu-scheduler",))
    assert sorted(rendered) == sorted(built)
    for key, expected in built.items():
        assert rendered[key] == expected, key


def test_one_alias_in_webhook_scheduler_and_policy(kustomize: Render) -> None:
    """Otherwise a pod that names the alias is not routed, not scheduled, or not guarded."""
    objects = kustomize("install", components=("gpu-scheduler",))
    configuration = objects["ConfigMap", "tranche-system", "tranche"]["data"]["config.yaml"]
    assert configuration["webhook"]["aliases"] == configuration["scheduler"]["aliases"] == [NAME]
    expressions = policy(objects, "tranche-creation")
    compared = [name for name, text in expressions.items() if "['tranche'" in text]
    assert sorted(compared) == ["concerns-gpus", "is-new-or-waits", "isReviewed", "ours", "tooLarge"]
    assert all(f"in ['tranche', '{NAME}', 'tranche-claims']" in expressions[name] for name in compared)


def test_component_keeps_the_settings_of_the_base(kustomize: Render) -> None:
    """It replaces the whole file, so it must follow every change of manifests/base/deployments/configuration.yaml."""
    with_component, without = (
        kustomize("install", components=components)["ConfigMap", "tranche-system", "tranche"]["data"]["config.yaml"]
        for components in (("gpu-scheduler",), ())
    )
    for section in ("webhook", "scheduler"):
        del with_component[section]["aliases"]
    assert with_component["webhook"].pop("included_namespaces") == [NAME]
    assert with_component == without


def test_namespace_of_the_release_is_opted_in_by_name(render_gpu_scheduler: Render) -> None:
    """The quick start labels no namespace: webhook and policies know this one, and treat it as one with the label."""
    objects = render_gpu_scheduler()
    labelled, included = (entries(objects)[f"{name}.gpu.scheduling"] for name in ("namespace", "included"))
    assert included["namespaceSelector"]["matchExpressions"][0]["values"] == [NAME]
    for each in (labelled, included):
        del each["name"], each["namespaceSelector"], each["objectSelector"]
    assert included == labelled
    for name in ("tranche-creation", "tranche-allocation-update"):
        assert policy(objects, name)["includedNamespaces"] == f"['{NAME}']"


def test_own_namespace_can_be_excluded(render_gpu_scheduler: Render) -> None:
    """Then no entry calls the webhook for it, and the policies do not know its name."""
    objects = render_gpu_scheduler("webhook.excludeOwnNamespace=true")
    assert "included.gpu.scheduling" not in entries(objects)
    excluded = entries(objects)["namespace.gpu.scheduling"]["namespaceSelector"]["matchExpressions"][1]
    assert excluded["operator"] == "NotIn"
    assert NAME in excluded["values"]
    assert policy(objects, "tranche-creation")["includedNamespaces"] == "[]"
    configuration = objects["ConfigMap", "tranche-system", "tranche"]["data"]["config.yaml"]
    assert configuration["webhook"]["excluded_namespaces"] == excluded["values"]


def test_own_certificate_is_mounted_and_trusted(render_gpu_scheduler: Render) -> None:
    """With `webhook.caBundle` the webhook serves the Secret's certificate, and may not change what is trusted."""
    objects = render_gpu_scheduler(f"webhook.caBundle={BUNDLE}")
    assert {each["clientConfig"].get("caBundle") for each in entries(objects).values()} == {BUNDLE}
    pod = objects["Deployment", "tranche-system", "tranche-webhook"]["spec"]["template"]["spec"]
    assert "gpu-scheduler-webhook-cert" in [each.get("secret", {}).get("secretName") for each in pod["volumes"]]
    assert pod["containers"][0]["args"] == ["--certificates-source=cert-manager"]
    rules = objects["ClusterRole", "", "tranche-webhook"]["rules"]
    (rule,) = (each for each in rules if "mutatingwebhookconfigurations" in each["resources"])
    assert "patch" not in rule["verbs"]


def test_own_certificate_excludes_cert_manager(helm: Any) -> None:
    """Two sources of one certificate would replace each other's."""
    values = (f"--set=webhook.caBundle={BUNDLE}", "--set=certManager.enabled=true")
    done = helm("template", NAME, str(GPU_SCHEDULER), f"--namespace={NAME}", *values)
    assert "set one of them" in done.stderr


def test_service_account_of_the_scheduler_is_renamed_everywhere(render_gpu_scheduler: Render) -> None:
    """Roles, policies and the webhook's settings refer to the account that the scheduler's pods have."""
    objects = render_gpu_scheduler("serviceAccountName=other")
    text = yaml.safe_dump([*objects.values()], width=10_000)
    users = set(re.findall(r"system:serviceaccount:tranche-system:([\w-]+)", text))
    assert users == {"other", "tranche-agent", "tranche-webhook", "tranche-static"}
    subjects = {
        subject["name"]
        for each in objects.values()
        for subject in each.get("subjects", [])
        if subject["kind"] == "ServiceAccount"
    }
    accounts = {name for kind, _, name in objects if kind == "ServiceAccount"}
    assert subjects == accounts == {"other", "tranche-agent", "tranche-webhook"}
    pod = objects["Deployment", "tranche-system", "tranche-scheduler"]["spec"]["template"]["spec"]
    assert pod["serviceAccountName"] == "other"


def test_processes_stay_in_their_namespace(render_gpu_scheduler: Render, helm: Any) -> None:
    """The policies name tranche-system; the release's namespace is for users, so it must be another one."""
    objects = render_gpu_scheduler()
    assert ("Namespace", "", "tranche-system") in objects
    assert {namespace for _, namespace, _ in objects} <= {"", "tranche-system"}
    done = helm("template", NAME, str(GPU_SCHEDULER), "--namespace=tranche-system")
    assert "use --namespace gpu-scheduler" in done.stderr


def test_values_are_those_of_the_other_chart_and_ziwons() -> None:
    """A value that charts/tranche gains is documented here as well, with the same default."""
    own, other = (
        yaml.safe_load((chart / "values.yaml").read_text(encoding="utf-8")) for chart in (GPU_SCHEDULER, CHART)
    )
    assert own.pop("serviceAccountName") == NAME
    assert (own["image"].pop("registry"), other["image"].pop("registry")) == ("", None)  # that project's needs none
    assert own["namespace"].pop("create") is not other["namespace"].pop("create")
    for name in ("caBundle", "excludeOwnNamespace"):
        assert not own["webhook"].pop(name)
    for section in ("webhook", "scheduler"):
        assert own["config"][section].pop("aliases") == [NAME]
    assert own.pop("config") == {"webhook": {}, **other.pop("config")}
    assert own == other


def test_versions_are_the_projects() -> None:
    """The chart installs the image of its own version."""
    metadata = yaml.safe_load((GPU_SCHEDULER / "Chart.yaml").read_text(encoding="utf-8"))
    assert metadata["version"] == metadata["appVersion"] == build.version()


def test_package_is_complete(helm: Any, tmp_path: Any, render_gpu_scheduler: Render) -> None:
    """The templates are a link into charts/tranche; a packaged chart has them as files."""
    done = helm("package", str(GPU_SCHEDULER), f"--destination={tmp_path}")
    assert done.returncode == 0, done.stderr
    (archive,) = tmp_path.glob("*.tgz")
    done = helm("template", NAME, str(archive), f"--namespace={NAME}")
    assert done.stderr == ""
    assert done.stdout.count("\nkind: Deployment\n") == 2
