"""GPUBindings in chart and components: off by default, one mode for both processes, and roles that only read."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any

import pytest
import yaml

from allocation.settings import AllocationSettings, BindingSettings
from cluster import configuration
from lab.chart import __main__ as chart
from scheduler.settings import SchedulerSettings
from tests.charts.conftest import ON_THE_NODES
from webhook.settings import WebhookSettings

pytestmark = pytest.mark.helm
Objects = dict[tuple[str, str, str], dict[str, Any]]
Render = Callable[..., Objects]
POLICY = ("ValidatingAdmissionPolicy", "", "tranche-gpubinding-writers")
DEFINITION = ("CustomResourceDefinition", "", "gpubindings.gpu.bytetrade.io")
SECTIONS = {"scheduler": SchedulerSettings, "webhook": WebhookSettings}


def allocation(objects: Objects, process: str) -> AllocationSettings:
    """Return the shared settings of a process, by its file and its flags."""
    data = objects["ConfigMap", "tranche-system", "tranche"]["data"]["config.yaml"]
    containers = objects["Deployment", "tranche-system", f"tranche-{process}"]["spec"]["template"]["spec"]["containers"]
    (container,) = [each for each in containers if each["name"] == process]
    flags = [*container["command"][3:], *container.get("args", [])]
    text, settings = yaml.safe_dump(data), SECTIONS[process]
    return configuration.parse(text, source="chart", flags=flags, section=process, settings=settings).allocation


def concerned(objects: Objects) -> list[tuple[str, str, str]]:
    """Return the objects that are about GPUBindings."""
    return [key for key, each in objects.items() if "gpubinding" in str(each) or "allocation-bindings" in str(each)]


def rules(objects: Iterable[dict[str, Any]]) -> list[dict[str, Any]]:
    """Return the rules of all roles that are about GPUBindings."""
    return [
        rule
        for each in objects
        if each["kind"] in ("Role", "ClusterRole")
        for rule in each["rules"]
        if "gpubindings" in rule["resources"]
    ]


def test_off_renders_nothing(render: Render) -> None:
    """By default the API server does not know the kind, the processes have no flag, and only viewers may read it."""
    viewer = [("ClusterRole", "", "tranche-viewer")]
    assert concerned(render()) == viewer
    assert concerned(render("bindings.writers={me}", "bindings.requireNamespace=true")) == viewer


@pytest.mark.parametrize("mode", ["labelled", "required"])
@pytest.mark.parametrize("require_namespace", ["true", "false"])
def test_webhook_and_scheduler_have_the_mode(mode: Any, require_namespace: str, render: Render) -> None:
    """Otherwise admission promises what the scheduler does not keep."""
    objects = render(f"bindings.mode={mode}", f"bindings.requireNamespace={require_namespace}")
    expected = BindingSettings(mode=mode, require_namespace=require_namespace == "true")
    assert {process: allocation(objects, process).bindings for process in SECTIONS} == dict.fromkeys(SECTIONS, expected)
    assert DEFINITION in objects


def test_required_replaces_labelled_and_order_matters(kustomize: Render) -> None:
    """The component `required` comes after the one whose mode it replaces, with any other component."""
    components = ("gpubindings", "gpubindings/required", "gpubindings/require-namespace", "extender", "nvidia-nri")
    objects = kustomize("install", components=("gpu-scheduler", *components))
    expected = BindingSettings(mode="required", require_namespace=True)
    assert {process: allocation(objects, process).bindings for process in SECTIONS} == dict.fromkeys(SECTIONS, expected)
    with pytest.raises(AssertionError, match="error in test for path"):
        kustomize("install", components=("gpubindings/required", "gpubindings"))


@pytest.mark.parametrize("mode", ["on", "Labelled", ""])
def test_unknown_mode_is_refused(mode: str, helm: Any) -> None:
    """The message has the modes."""
    done = helm("template", "t", str(chart.CHART), "--namespace=tranche-system", f"--set=bindings.mode={mode}")
    assert done.returncode != 0
    assert "'off', 'labelled', 'required'" in done.stderr


def test_mode_in_the_configuration_is_refused(helm: Any) -> None:
    """It would bring neither the definition nor the roles, and the processes would not become ready."""
    value = "--set=config.allocation.bindings.mode=required"
    done = helm("template", "t", str(chart.CHART), "--namespace=tranche-system", ON_THE_NODES, value)
    assert "set bindings.mode and bindings.requireNamespace instead" in done.stderr


def test_no_role_writes(render: Render) -> None:
    """Only the application service writes GPUBindings (`get` is for the scheduler's last look)."""
    found = rules(render("bindings.mode=required", "hamiNodes.enabled=true", "extender.enabled=true").values())
    assert len(found) == 3
    assert {verb for rule in found for verb in rule["verbs"]} == {"get", "list", "watch"}


def test_writers_are_off_by_default_and_reach_the_policy(render: Render) -> None:
    """Without a list no user is refused; an empty list in the policy would refuse all."""
    assert POLICY not in render("bindings.mode=labelled")
    user = "system:serviceaccount:apps:app-service"
    policy = render("bindings.mode=labelled", f"bindings.writers={{{user},admin}}")[POLICY]
    assert policy["spec"]["variables"] == [{"name": "writers", "expression": f"['{user}', 'admin']"}]


def test_chart_and_component_have_the_same_policy(render: Render, kustomize: Render) -> None:
    """Apart from the list, which an overlay replaces."""
    rendered = render("bindings.mode=labelled", "bindings.writers={admin}")
    built = kustomize("install", components=("gpubindings", "gpubindings/writers"))
    assert built[POLICY]["spec"]["variables"].pop()["expression"] == "[]"
    rendered[POLICY]["spec"]["variables"].pop()
    assert rendered[POLICY] == built[POLICY]


def test_definition_can_be_left_out(render: Render) -> None:
    """Where another chart has installed it."""
    assert DEFINITION not in render("bindings.mode=labelled", "crds.enabled=false")


def test_bindings_outlive_the_release(render: Render) -> None:
    """They belong to the application service: neither mode off nor an uninstallation deletes their definition."""
    for keep in ("true", "false"):
        definition = render("bindings.mode=labelled", f"crds.keep={keep}")[DEFINITION]
        assert definition["metadata"]["annotations"] == {"helm.sh/resource-policy": "keep"}
