"""The chart renders what kustomize builds, and refuses values that would have no effect."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

import pytest
import yaml

from cluster import configuration
from lab.chart import __main__ as chart
from lab.chart import schema
from lab.chart.template import Edit, StalePassageError, Template
from lab.chart.template import render as fill
from lab.image import build
from tests.charts.conftest import CHART, ON_THE_NODES, Helm, identity

pytestmark = [pytest.mark.helm, pytest.mark.long]
NAMESPACE = "namespace.create=true"
PARTS = (("Deployment", "webhook"), ("Deployment", "scheduler"), ("DaemonSet", "agent"))
Render = Callable[..., dict[tuple[str, str, str], dict[str, Any]]]
CASES = {
    "defaults": ((), ("install",), ()),
    "every namespace for itself": (("clusterWide=false",), ("base", "base/deployments"), ()),
    "cert-manager": (("certManager.enabled=true",), ("install",), ("cert-manager",)),
    "nodes of HAMi's plugin": (("hamiNodes.enabled=true",), ("install",), ("hami-nodes",)),
    "HAMi-core": (("isolation.hamiCore=true",), ("install",), ("isolation",)),
    "facts of the host": (("delivery.hostFacts=true",), ("install",), ("delivery",)),
    "real use": (("usage.hostPID=true",), ("install",), ("usage",)),
    "NVIDIA's NRI plugin": (("delivery.nvidiaNri=true",), ("install",), ("nvidia-nri",)),
    "the agent as an NRI plugin": (("delivery.nri=true",), ("install",), ("nri",)),
    "MPS": (("delivery.nri=true", "isolation.mps=true"), ("install",), ("nri", "mps")),
    "the driver's limits": (
        ("delivery.nri=true", "isolation.memoryLimits=true"),
        *(("install",), ("nri", "memory-limits")),
    ),
    "the agent as a device plugin": (("delivery.devicePlugin=true",), ("install",), ("device-plugin",)),
    "extender mode": (("extender.enabled=true",), ("install",), ("extender",)),
    "claims of other drivers": (("resourceClaims.enabled=true",), ("install",), ("resource-claims",)),
    "quota for priority classes": (("priorityQuota=true",), ("install",), ("priority-quota",)),
    "missing devices": (("missingDevices=delete",), ("install",), ("missing-devices",)),
    "rigid budgets": (("rigidBudgets=violate",), ("install",), ("rigid-budgets",)),
    "resize": (("resize=true",), ("install",), ("resize",)),
    "the page": (("ui.enabled=true",), ("install",), ("ui",)),
    "the page, exposed": (("ui.enabled=true", "ui.exposed=true"), ("install",), ("ui", "ui-exposed")),
    "expander": (("expander.enabled=true",), ("install",), ("expander",)),
    "PodGroups": (("gangs.podGroups=true",), ("install",), ("coscheduling",)),
    "pod templates": (("webhook.completeTemplates=true",), ("install",), ("complete-templates",)),
    "pod templates and cert-manager": (
        ("webhook.completeTemplates=true", "certManager.enabled=true"),
        ("install",),
        ("complete-templates", "cert-manager"),
    ),
    "guard beside a DRA driver": (("draGuard.enabled=true",), ("install",), ("dra-guard",)),
    "nodes of DRA": (("dra.enabled=true",), ("install",), ("dra",)),
    "GPUBindings": (("bindings.mode=labelled",), ("install",), ("gpubindings",)),
    "GPUBindings for every pod": (
        ("bindings.mode=required", "bindings.requireNamespace=true"),
        ("install",),
        ("gpubindings", "gpubindings/required", "gpubindings/require-namespace"),
    ),
}


def pods(objects: dict[tuple[str, str, str], dict[str, Any]]) -> dict[str, dict[str, Any]]:
    """Return the pod template of each process."""
    return {part: objects[kind, "tranche-system", f"tranche-{part}"]["spec"]["template"] for kind, part in PARTS}


def without_hash(objects: dict[tuple[str, str, str], dict[str, Any]]) -> dict[tuple[str, str, str], dict[str, Any]]:
    """Return the objects with the name that kustomize's hash of a generated ConfigMap extends."""
    name = "tranche-kube-scheduler-configuration"
    text = json.dumps([*objects.values()])
    for _, _, found in objects:
        if found.startswith(f"{name}-"):
            text = text.replace(found, name)
    return {identity(each): each for each in json.loads(text)}


@pytest.mark.parametrize("case", CASES)
def test_chart_equals_kustomize(case: str, render: Render, kustomize: Render) -> None:
    """Both ways of installing create the same objects, field by field."""
    values, resources, components = CASES[case]
    rendered, built = render(NAMESPACE, *values), without_hash(kustomize(*resources, components=components))
    for each in (*rendered.values(), *built.values()):
        if each["metadata"]["name"] == "tranche-kube-scheduler-configuration":
            each["metadata"].pop("labels", None)
    assert sorted(rendered) == sorted(built)
    for key, expected in built.items():
        assert rendered[key] == expected, key


def test_generated_files_are_up_to_date() -> None:
    """A changed manifest or setting reaches the chart: run `python -m lab.chart`."""
    stale = [path.name for path, text in chart.generated().items() if path.read_text(encoding="utf-8") != text]
    assert stale == []


def test_changed_passage_stops_the_generator() -> None:
    """A value never silently loses its effect because a manifest was reworded."""
    template = Template("t.yaml", "m.yaml", (Edit("replicas: 2", "replicas: {{ .Values.replicas }}"),))
    with pytest.raises(StalePassageError, match="has 'replicas: 2' 0 times, not 1"):
        fill(template, "replicas: 3\n")


@pytest.mark.parametrize(
    ("value", "key"),
    [
        ("imagePullSecret=x", "imagePullSecret"),
        ("webhook.caBundle=x", "caBundle"),
        ("webhook.replica=3", "replica"),
        ("config.scheduler.hots=0.0.0.0", "hots"),
        ("agent.image.repo=x", "repo"),
        ("monitoring.podMonitor.on=true", "on"),
        ("monitoring.serviceMonitor.scheme=https", "scheme"),
        ("extender.image.name=x", "name"),
    ],
)
def test_unknown_value_is_an_error_that_names_it(value: str, key: str, helm: Any) -> None:
    """Users of charts without a schema set keys that do nothing."""
    done = helm("template", "tranche", str(chart.CHART), "--namespace=tranche-system", f"--set={value}")
    assert done.returncode != 0
    assert f"'{key}' not allowed" in done.stderr


def test_schema_and_defaults_have_the_same_keys() -> None:
    """values.yaml shows every value that the schema permits."""
    values = yaml.safe_load((chart.CHART / "values.yaml").read_text(encoding="utf-8"))
    properties = json.loads(schema.text())["properties"]
    assert values.keys() == properties.keys()
    for name in values.keys() - {"config"}:
        listed = properties[name].get("properties", {})
        assert listed.keys() == (values[name].keys() if isinstance(values[name], dict) else set()), name


def test_an_installation_without_a_registry_is_refused(helm: Helm) -> None:
    """No public registry has the image, so pods would wait for it for ever; "" says that the nodes have it."""
    template = ("template", "tranche", str(CHART), "--namespace=tranche-system")
    done = helm(*template)
    assert done.returncode != 0
    assert "image.registry is not set: name the registry that has the image" in done.stderr
    for value in ("global.imageRegistry=registry.example", "image.registry=registry.example"):
        assert "image: registry.example/tranche:0.1.0\n" in helm(*template, f"--set={value}").stdout
    assert "image: tranche:0.1.0\n" in helm(*template, ON_THE_NODES).stdout


@pytest.mark.parametrize(
    "values",
    [("extender.enabled=true", "resourceClaims.enabled=true"), ("config.allocation.resource_claims=hand-over",)],
)
def test_pods_are_handed_over_by_one_value_and_not_in_extender_mode(helm: Helm, values: tuple[str, ...]) -> None:
    """Otherwise pods would wait for a kube-scheduler that is not there."""
    sets = [f"--set={each}" for each in values]
    done = helm("template", "tranche", str(CHART), "--namespace=tranche-system", ON_THE_NODES, *sets)
    assert done.returncode != 0
    assert "resourceClaims.enabled" in done.stderr


def test_images_come_from_one_registry(render: Render) -> None:
    """A cluster without access to others sets one value; pull secrets reach every pod."""
    rendered = pods(render("global.imageRegistry=registry.example:5000/a", "image.pullSecrets[0].name=key"))
    for pod in rendered.values():
        assert pod["spec"]["containers"][0]["image"] == "registry.example:5000/a/tranche:0.1.0"
        assert pod["spec"]["imagePullSecrets"] == [{"name": "key"}]


def test_kube_scheduler_comes_from_the_same_registry(render: Render) -> None:
    """Extender mode needs a second image, which a cluster without access to others mirrors as well."""

    def image(*values: str) -> str:
        rendered = pods(render("extender.enabled=true", *values))["scheduler"]["spec"]["containers"]
        (found,) = [each["image"] for each in rendered if each["name"] == "kube-scheduler"]
        return str(found)

    mirror = "global.imageRegistry=registry.example:5000/a"
    assert image() == "registry.k8s.io/kube-scheduler:v1.34.4"
    assert image(mirror) == "registry.example:5000/a/kube-scheduler:v1.34.4"
    assert image(mirror, "extender.image.tag=v1.33.1") == "registry.example:5000/a/kube-scheduler:v1.33.1"
    digest = f"sha256:{'0' * 64}"
    assert image(f"extender.image.digest={digest}") == f"registry.k8s.io/kube-scheduler@{digest}"


def test_digest_takes_precedence_and_parts_may_differ(render: Render) -> None:
    """A digest names one image for good; `agent.image` differs from `image` in what it sets only."""
    digest = f"sha256:{'0' * 64}"
    rendered = pods(render("image.tag=v2", f"agent.image.digest={digest}", "webhook.image.pullPolicy=Always"))
    images = {part: pod["spec"]["containers"][0]["image"] for part, pod in rendered.items()}
    assert images == {"webhook": "tranche:v2", "scheduler": "tranche:v2", "agent": f"tranche@{digest}"}
    policies = {part: pod["spec"]["containers"][0].get("imagePullPolicy") for part, pod in rendered.items()}
    assert policies == {"webhook": "Always", "scheduler": None, "agent": None}


@pytest.mark.parametrize(("values", "count"), [((), 5), (("crds.enabled=false",), 0), (("crds.install=false",), 0)])
def test_crds_can_be_left_out(values: tuple[str, ...], count: int, render: Render) -> None:
    """By Helm's usual name, and by the one of ziwon's chart."""
    assert sum(kind == "CustomResourceDefinition" for kind, _, _ in render(*values)) == count


def test_crds_are_kept_if_asked(render: Render) -> None:
    """Helm leaves objects with this annotation where they are."""
    for (kind, _, _), each in render("crds.keep=true").items():
        kept = each["metadata"].get("annotations", {}).get("helm.sh/resource-policy") == "keep"
        assert kept == (kind == "CustomResourceDefinition")


def test_runtime_class_is_optional(render: Render) -> None:
    """Where no RuntimeClass exists, neither the agent nor admission names one."""
    rendered = render("runtimeClassName=")
    assert "runtimeClassName" not in pods(rendered)["agent"]["spec"]
    assert "webhook" not in rendered["ConfigMap", "tranche-system", "tranche"]["data"]["config.yaml"]


def test_configuration_is_what_the_processes_read(render: Render) -> None:
    """Values below `config` reach the file, and a change replaces the pods."""
    rendered = render("config.webhook.drain_seconds=3", "config.log.format=json")
    text = yaml.safe_dump(rendered["ConfigMap", "tranche-system", "tranche"]["data"]["config.yaml"])
    settings = configuration.parse(text, source="chart", section="webhook", settings=schema.SECTIONS["webhook"])
    assert settings.own.drain_seconds == 3
    assert settings.own.runtime_class_name == "nvidia"
    assert settings.log.format == "json"


@pytest.mark.parametrize(
    ("values", "allowed"),
    [
        ((), "['', 'none', 'hami-core', 'mps', 'mig', 'cuda']"),
        (("config.webhook.isolation=cuda", "config.webhook.allowed_isolations={cuda,mig}"), "['cuda', 'mig']"),
        (("config.webhook.allowed_isolations={none,mps}",), "['', 'none', 'mps']"),
    ],
)
def test_the_policy_allows_the_isolations_that_the_webhook_allows(
    render: Render, values: tuple[str, ...], allowed: str
) -> None:
    """A pod that chose none is allowed where `none` is."""
    policy = render(*values)["ValidatingAdmissionPolicy", "", "tranche-creation"]
    (found,) = (each["expression"] for each in policy["spec"]["variables"] if each["name"] == "allowedIsolations")
    assert found == allowed


def test_aliases_of_the_scheduler_reach_the_policies(render: Render) -> None:
    """A pod that names an alias is guarded like one that names the scheduler."""
    policy = render("config.scheduler.aliases={old}")["ValidatingAdmissionPolicy", "", "tranche-creation"]
    text = yaml.safe_dump(policy, width=10_000)
    assert "in ['tranche', 'old', 'tranche-claims']" in text.replace("''", "'")


@pytest.mark.parametrize(
    ("values", "evicts"),
    [
        ((), True),
        (("config.scheduler.preemption.concurrent=2",), True),
        (("config.scheduler.preemption.enabled=true",), True),
        (("config.scheduler.preemption.enabled=false",), False),
    ],
)
def test_right_to_evict_goes_with_the_setting(values: tuple[str, ...], *, evicts: bool, render: Render) -> None:
    """Where preemption is off, the scheduler reads that, and no role grants it what it does not need."""
    rendered = render(*values)
    roles = [each for (kind, _, _), each in rendered.items() if kind == "ClusterRole"]
    granted = any("pods/eviction" in rule["resources"] for role in roles for rule in role["rules"])
    bound = ("ClusterRoleBinding", "", "tranche-scheduler-preemption") in rendered
    text = yaml.safe_dump(rendered["ConfigMap", "tranche-system", "tranche"]["data"]["config.yaml"])
    settings = configuration.parse(text, source="chart", section="scheduler", settings=schema.SECTIONS["scheduler"])
    assert (granted, bound, settings.own.preemption.enabled) == (evicts, evicts, evicts)


def test_own_namespace_is_always_excluded(render: Render) -> None:
    """Admission never waits for itself."""
    configured = render("webhook.excludeNamespaces={infra}")["MutatingWebhookConfiguration", "", "tranche"]
    lists = [
        term["values"]
        for webhook in configured["webhooks"]
        for term in webhook["namespaceSelector"].get("matchExpressions", [])
        if term["key"] == "kubernetes.io/metadata.name"
    ]
    assert lists == [["infra", "tranche-system"]] * 3


def test_monitoring_is_off_by_default(render: Render) -> None:
    """Its kinds belong to an operator that may be missing."""
    added = {"PodMonitor", "ServiceMonitor", "PrometheusRule"}
    assert not added & {kind for kind, _, _ in render()}
    rendered = render(*(f"monitoring.{part}.enabled=true" for part in ("podMonitor", "prometheusRule", "dashboard")))
    assert added & {kind for kind, _, _ in rendered} == {"PodMonitor", "PrometheusRule"}
    assert rendered["PrometheusRule", "tranche-system", "tranche"]["spec"]["groups"][0]["name"] == "tranche-scheduler"
    assert "tranche.json" in rendered["ConfigMap", "tranche-system", "tranche-dashboard"]["data"]


@pytest.mark.parametrize("extender", ["false", "true"])
@pytest.mark.parametrize("kind", ["PodMonitor", "ServiceMonitor"])
def test_each_process_is_scraped_once(kind: str, extender: str, render: Render) -> None:
    """By either monitor, at the port of its metrics, as a job with its own name."""
    monitor = f"monitoring.{kind[0].lower()}{kind[1:]}"
    rendered = render(f"{monitor}.enabled=true", f"{monitor}.labels.release=prometheus", f"extender.enabled={extender}")
    found = rendered[kind, "tranche-system", "tranche"]
    assert found["metadata"]["labels"]["release"] == "prometheus"
    labels = found["spec"]["selector"]["matchLabels"]
    (endpoint,) = found["spec"]["podMetricsEndpoints" if kind == "PodMonitor" else "endpoints"]
    if kind == "ServiceMonitor":
        services = [each for (which, *_), each in rendered.items() if which == "Service"]
        (service,) = [each for each in services if labels.items() <= each["metadata"]["labels"].items()]
        assert [each["targetPort"] for each in service["spec"]["ports"] if each["name"] == endpoint["port"]] == [
            "metrics"
        ]
        labels = service["spec"]["selector"]
    assert endpoint["relabelings"][0]["targetLabel"] == "job"
    assert endpoint["honorLabels"] is True, "the namespace of a quota would be that of the scheduler"
    ports = {
        part: [
            port["containerPort"]
            for each in pod["spec"]["containers"]
            for port in each["ports"]
            if port["name"] == "metrics"
        ]
        for part, pod in pods(rendered).items()
        if labels.items() <= pod["metadata"]["labels"].items()
    }
    assert ports == {"webhook": [9090], "scheduler": [9090 if extender == "true" else 8444], "agent": [9090]}
    allowed = rendered["NetworkPolicy", "tranche-system", "tranche-metrics"]["spec"]["ingress"][0]["ports"]
    assert {port for each in ports.values() for port in each} <= {each["port"] for each in allowed}


def test_quota_permits_every_priority_class_that_the_pods_have(render: Render) -> None:
    """Where a cloud admits these classes only by a quota, no process is left out; the default creates no quota."""
    name = ("ResourceQuota", "tranche-system", "tranche-priority")
    assert name not in render()
    objects = render("priorityQuota=true")
    (expression,) = objects[name]["spec"]["scopeSelector"]["matchExpressions"]
    assert {*expression["values"]} == {each["spec"]["priorityClassName"] for each in pods(objects).values()}


def test_two_monitors_at_once_are_refused(helm: Any) -> None:
    """Each process would be scraped twice, and every rate would be double."""
    flags = [f"--set=monitoring.{each}.enabled=true" for each in ("podMonitor", "serviceMonitor")]
    done = helm("template", "tranche", str(chart.CHART), "--namespace=tranche-system", ON_THE_NODES, *flags)
    assert "monitoring.podMonitor and monitoring.serviceMonitor: enable only one" in done.stderr


@pytest.mark.parametrize("value", ["isolation.mps", "isolation.memoryLimits"])
def test_what_the_agents_plugin_has_to_bring_needs_the_plugin(helm: Any, value: str) -> None:
    """A daemon whose pipes no container has, and limits of containers that the agent does not know, have no use."""
    flags = ("--namespace=tranche-system", ON_THE_NODES, f"--set={value}=true")
    done = helm("template", "tranche", str(chart.CHART), *flags)
    assert f"{value}: without delivery.nri=true" in done.stderr


def test_logs_of_the_test_are_printed(helm: Any) -> None:
    """Helm prints the logs of containers, not of init containers; `--logs` of Helm 3 fails on the other hooks."""
    done = helm(
        "template",
        "tranche",
        str(chart.CHART),
        "--namespace=tranche-system",
        ON_THE_NODES,
        "--show-only=templates/tests/test.yaml",
    )
    (pod,) = [each for each in yaml.safe_load_all(done.stdout) if each["kind"] == "Pod"]
    assert pod["metadata"]["annotations"]["helm.sh/hook-output-log-policy"] == "hook-succeeded,hook-failed"
    assert [each["name"] for each in pod["spec"]["containers"]] == ["preflight", "dry-run"]
    assert "initContainers" not in pod["spec"]


def test_other_namespaces_are_refused(helm: Any) -> None:
    """The policies name tranche-system, so an installation elsewhere would refuse its own Bindings."""
    done = helm("template", "tranche", str(chart.CHART), "--namespace=elsewhere", ON_THE_NODES)
    assert 'namespace "elsewhere": Tranche runs in tranche-system' in done.stderr


def test_templates_suit_gitops() -> None:
    """No object depends on the cluster at rendering time, nothing is run by a hook, no controller's field is set."""
    for path in (chart.CHART / "templates").rglob("*"):
        if path.is_file() and path.parent.name != "tests":
            text = path.read_text(encoding="utf-8")
            assert "lookup " not in text or path.name == "NOTES.txt"
            assert "helm.sh/hook" not in text
            assert "caBundle:" not in text


def test_versions_are_the_projects() -> None:
    """The chart installs the image of its own version."""
    metadata = yaml.safe_load((chart.CHART / "Chart.yaml").read_text(encoding="utf-8"))
    assert metadata["version"] == metadata["appVersion"] == build.version()


def test_pods_of_helm_test_have_requests_and_limits(helm: Helm) -> None:
    """A namespace with a ResourceQuota or a policy that demands them admits them."""
    done = helm(
        "template",
        "tranche",
        str(CHART),
        "--namespace=tranche-system",
        ON_THE_NODES,
        "--show-only=templates/tests/test.yaml",
    )
    (tested,) = [each for each in yaml.safe_load_all(done.stdout) if each["kind"] == "Pod"]
    containers = tested["spec"]["containers"]
    assert len(containers) == 2
    for each in containers:
        assert each["resources"]["requests"].keys() == each["resources"]["limits"].keys() == {"cpu", "memory"}
