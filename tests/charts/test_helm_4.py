"""The chart is the same with Helm 4 as with Helm 3, and Helm 4 can install, upgrade and remove it."""

from __future__ import annotations

from functools import partial

import pytest

from lab import wait
from lab.client import client
from lab.layout import Layout
from tests.charts.conftest import CHART, ON_THE_NODES, Helm, objects
from tests.charts.test_chart import CASES

pytestmark = pytest.mark.helm
NAMESPACE = "--namespace=tranche-system"
NAMED = {"metadata": {"name": "nvidia"}}
VALUES = {
    **{name: values for name, (values, *_) in CASES.items()},
    "monitoring": (
        "monitoring.serviceMonitor.enabled=true",
        "monitoring.prometheusRule.enabled=true",
        "monitoring.dashboard.enabled=true",
    ),
    "mirrored images": ("global.imageRegistry=registry.example", "extender.enabled=true"),
}


@pytest.mark.parametrize("case", VALUES)
def test_both_versions_render_alike(case: str, helm: Helm, helm_4: Helm) -> None:
    """Including the objects of `helm test`."""
    flags = [f"--set={each}" for each in VALUES[case]]
    texts = []
    for program in (helm, helm_4):
        done = program("template", "tranche", str(CHART), NAMESPACE, ON_THE_NODES, *flags)
        assert done.returncode == 0, done.stderr
        texts.append(done.stdout)
    assert objects(texts[0]) == objects(texts[1])


def test_helm_4_finds_nothing_to_complain_about(helm_4: Helm) -> None:
    """Not even a warning."""
    done = helm_4("lint", "--strict", str(CHART), NAMESPACE)
    assert done.returncode == 0, done.stdout
    assert "[WARNING]" not in done.stdout


def test_unknown_value_is_an_error_with_helm_4(helm_4: Helm) -> None:
    """The schema is checked by another library there."""
    done = helm_4("template", "tranche", str(CHART), NAMESPACE, "--set=webhook.replica=3")
    assert done.returncode != 0
    assert "'replica' not allowed" in done.stderr


@pytest.mark.apiserver
def test_helm_4_takes_over_a_release_and_applies_on_the_server(helm: Helm, helm_4: Helm, empty_cluster: Layout) -> None:
    """A dry run, an upgrade of what Helm 3 installed, a removal, and an own installation by server-side apply."""
    flags = (f"--kubeconfig={empty_cluster.kubeconfig}", NAMESPACE)

    def check(program: Helm, *arguments: str) -> str:
        done = program(*arguments, *flags)
        assert done.returncode == 0, done.stderr
        return done.stdout

    def slots() -> int:
        text = client(empty_cluster).get("configmap", "tranche", namespace="tranche-system")["data"]["config.yaml"]
        return int(text.partition("slots:")[2].split()[0])

    install = ("install", "tranche", str(CHART), "--create-namespace", ON_THE_NODES, "--set=config.agent.slots=5")
    assert "MISSING: RuntimeClass nvidia does not exist" in check(helm, *install)
    check(helm_4, "upgrade", "tranche", str(CHART), "--reuse-values", "--set=config.agent.slots=6", "--dry-run=server")
    assert slots() == 5
    check(helm_4, "upgrade", "tranche", str(CHART), "--reuse-values", "--set=config.agent.slots=6")
    assert slots() == 6
    client(empty_cluster).apply({"apiVersion": "node.k8s.io/v1", "kind": "RuntimeClass", "handler": "nvidia", **NAMED})
    assert "MISSING" not in check(helm_4, "upgrade", "tranche", str(CHART), "--reuse-values")
    # Its --wait now and then misses the end of an object, and waits for it until its time is over.
    check(helm_4, "uninstall", "tranche")
    left = partial(client(empty_cluster).find, "deployment", "tranche-webhook", namespace="tranche-system")
    wait.until(lambda: left() is None, what="the end of the release", timeout_s=60)
    check(helm_4, *install)
    managers = client(empty_cluster).get("deployment", "tranche-webhook", namespace="tranche-system")
    assert "Apply" in {each["operation"] for each in managers["metadata"]["managedFields"]}
    check(helm_4, "upgrade", "tranche", str(CHART), "--reuse-values", "--set=config.agent.slots=7")
    assert slots() == 7
