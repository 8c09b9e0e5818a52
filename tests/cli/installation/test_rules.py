"""Commands use the installed configuration, unless `--config` names a file."""

import json
import subprocess
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml

from cli.__main__ import main
from cli.installation import rules
from cli.installation.installed import Installed
from cli.installation.method import Method
from lab.client import client
from lab.layout import Layout

Gpu = Callable[..., "subprocess.CompletedProcess[str]"]
SYSTEM = "tranche-system"
POD = {
    "apiVersion": "v1",
    "kind": "Pod",
    "metadata": {"name": "p"},
    "spec": {"containers": [{"name": "main", "resources": {"limits": {"example.com/gpu": "1"}}}]},
}
CONFIGURATION = """
allocation: {resources: {count: example.com/gpu}}
webhook: {runtime_class_name: nvidia}
scheduler: {aliases: [old-scheduler]}
"""


def config_map(text: str, *, name: str = "tranche") -> dict[str, Any]:
    """Return a ConfigMap as the Deployments mount it."""
    metadata = {"name": name, "namespace": SYSTEM}
    return {"apiVersion": "v1", "kind": "ConfigMap", "metadata": metadata, "data": {"config.yaml": text}}


@pytest.fixture
def installed(team: Layout) -> Iterator[Layout]:
    """A cluster with a configuration that differs from the defaults."""
    client(team).apply(config_map(CONFIGURATION))
    yield team
    client(team).delete("configmap", "tranche", namespace=SYSTEM)


@pytest.fixture
def manifest(tmp_path: Path) -> str:
    """A file with a pod that requests a card by the installed resource name."""
    (tmp_path / "pod.yaml").write_text(yaml.safe_dump(POD))
    return str(tmp_path / "pod.yaml")


@pytest.mark.apiserver
def test_inject_uses_the_installed_configuration(installed: Layout, gpu: Gpu, manifest: str) -> None:
    """The output has the runtime class that admission would write; a viewer may read the configuration."""
    done = gpu("inject", "-f", manifest)
    assert (done.returncode, done.stderr) == (0, "")
    assert yaml.safe_load(done.stdout)["spec"]["runtimeClassName"] == "nvidia"


@pytest.mark.apiserver
def test_config_flag_replaces_the_installed_configuration(
    installed: Layout, gpu: Gpu, manifest: str, tmp_path: Path
) -> None:
    """No key of the installed configuration has an effect."""
    (tmp_path / "config.yaml").write_text("webhook: {runtime_class_name: other}")
    done = gpu("inject", "-f", manifest, "--config", str(tmp_path / "config.yaml"))
    assert (done.returncode, yaml.safe_load(done.stdout)) == (0, POD)


@pytest.mark.apiserver
def test_unreadable_configuration_is_noted_and_defaults_are_assumed(installed: Layout, gpu: Gpu, manifest: str) -> None:
    """One line on standard error names the assumption; the command continues."""
    done = gpu("inject", "-f", manifest, account="stranger")
    (line,) = (line for line in done.stderr.splitlines() if "ConfigMap" in line)
    assert line.startswith("note: ConfigMap tranche-system/tranche cannot be read: get configmaps in namespace")
    assert line.endswith("the defaults are assumed; use --config to name another file")
    assert (done.returncode, yaml.safe_load(done.stdout)) == (0, POD)


@pytest.mark.apiserver
def test_explain_notes_an_unreadable_configuration_too(installed: Layout, gpu: Gpu, manifest: str) -> None:
    """Explanations depend on the configuration as well, so the note appears with every one."""
    rules_ = [
        {"apiGroups": [group], "resources": [resource], "verbs": ["get", "list"]}
        for group, resource in (
            ("", "pods"),
            ("", "nodes"),
            ("", "namespaces"),
            ("", "resourcequotas"),
            ("coordination.k8s.io", "leases"),
            ("gpu.scheduling", "gpuclaims"),
            ("gpu.scheduling", "gpunodestatuses"),
            ("", "persistentvolumes"),
            ("", "persistentvolumeclaims"),
            ("storage.k8s.io", "*"),
        )
    ]
    head = {"apiVersion": "rbac.authorization.k8s.io/v1", "metadata": {"name": "cli-reader"}}
    subject = {"kind": "ServiceAccount", "name": "stranger", "namespace": "cli-team"}
    reference = {"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": "cli-reader"}
    client(installed).apply(
        {**head, "kind": "ClusterRole", "rules": rules_},
        {**head, "kind": "ClusterRoleBinding", "roleRef": reference, "subjects": [subject]},
    )
    try:
        done = gpu("explain", "waiting", account="stranger")
        assert "note: ConfigMap tranche-system/tranche cannot be read: get configmaps in namespace" in done.stderr
        assert "note: it is unknown whether the webhook responds: " in done.stderr
    finally:
        for kind in ("clusterrolebinding", "clusterrole"):
            client(installed).delete(kind, "cli-reader")


@pytest.mark.apiserver
def test_deployments_determine_config_map_and_flags(team: Layout, gpu: Gpu, manifest: str) -> None:
    """An overlay may rename the ConfigMap, and a flag overrides the file; Helm marks its objects with the release."""
    container = {
        "name": "webhook",
        "image": "i",
        "command": ["python3", "-m", "webhook"],
        "args": ["--runtime-class-name=of-a-flag"],
        "volumeMounts": [{"name": "c", "mountPath": "/etc/tranche"}],
    }
    labels = {"app": "webhook"}
    spec = {"containers": [container], "volumes": [{"name": "c", "configMap": {"name": "tranche-7hk2"}}]}
    deployment = {
        "apiVersion": "apps/v1",
        "kind": "Deployment",
        "metadata": {
            "name": "tranche-webhook",
            "namespace": SYSTEM,
            "annotations": {"meta.helm.sh/release-name": "gpus", "meta.helm.sh/release-namespace": "ops"},
        },
        "spec": {
            "replicas": 0,
            "selector": {"matchLabels": labels},
            "template": {"metadata": {"labels": labels}, "spec": spec},
        },
    }
    client(team).apply(config_map(CONFIGURATION, name="tranche-7hk2"), deployment)
    try:
        assert main(["inject", "-f", manifest, "--kubeconfig", str(team.kubeconfig), "-o", "json"]) == 0
        settings = rules.of_cluster(_client(team))
        assert settings.webhook.runtime_class_name == "of-a-flag"
        assert settings.names == ("tranche", "tranche-claims", "old-scheduler")
        assert settings.allocation.resources.count == "example.com/gpu"
        assert settings.method == Method("gpus", "ops")
    finally:
        client(team).delete("deployment", "tranche-webhook", namespace=SYSTEM)
        client(team).delete("configmap", "tranche-7hk2", namespace=SYSTEM)


def _client(layout: Layout) -> Any:
    from cli.arguments import parse  # noqa: PLC0415 -- only here
    from cli.kube.session import open_session  # noqa: PLC0415 -- only here

    return open_session(parse(["top", "--kubeconfig", str(layout.kubeconfig)])).client


@pytest.mark.apiserver
def test_wrong_installed_configuration_is_an_error(team: Layout, gpu: Gpu, manifest: str) -> None:
    """No process would start with it, which the defaults would hide."""
    client(team).apply(config_map("webhook: {runtime_class: nvidia}"))
    try:
        done = gpu("inject", "-f", manifest)
        assert (done.returncode, done.stdout, done.stderr.count("\n")) == (2, "", 1)
        assert "error: ConfigMap tranche-system/tranche: section webhook: " in done.stderr
    finally:
        client(team).delete("configmap", "tranche", namespace=SYSTEM)


@pytest.mark.parametrize("command", [["inject", "-f", "-"], ["explain", "p"], ["preflight"], ["top"]])
@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("allocation: {default_cunt: 1}", "section allocation: "),
        ("webhok: {}", "unknown section webhok"),
        ("[1", "while parsing a flow sequence"),
        ("- 1", "must be a mapping of sections"),
        (None, "cannot be read: No such file"),
    ],
)
def test_wrong_configuration_file_is_a_one_line_error(
    command: list[str], text: str | None, message: str, tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    """The line has the file and the problem, without a usage message; the exit code is 2."""
    file = tmp_path / "config.yaml"
    if text is not None:
        file.write_text(text)
    kubeconfig = tmp_path / "kubeconfig"
    cluster = {"clusters": [{"name": "c", "cluster": {"server": "http://127.0.0.1:1"}}]}
    context = {"current-context": "c", "contexts": [{"name": "c", "context": {"cluster": "c"}}]}
    kubeconfig.write_text(json.dumps(cluster | context))
    code = main(["--kubeconfig", str(kubeconfig), *command, "--config", str(file)])
    captured = capfd.readouterr()
    assert (code, captured.out, captured.err.count("\n")) == (2, "", 1)
    assert message in captured.err
    assert str(file) in captured.err


def test_inject_notes_the_defaults_without_a_cluster(
    manifest: str, monkeypatch: pytest.MonkeyPatch, tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    """The command continues: manifests can be changed without a cluster."""
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.delenv("KUBECONFIG", raising=False)
    monkeypatch.delenv("KUBERNETES_SERVICE_HOST", raising=False)
    assert main(["inject", "-f", manifest]) == 0
    errors = capfd.readouterr().err
    assert errors.startswith("note: the installed configuration cannot be read: no cluster is configured")
    assert "the defaults are assumed" in errors


def test_empty_configuration_means_defaults() -> None:
    """An empty text without flags gives the settings of a process without a file."""
    nothing = Installed("ConfigMap")
    assert rules._rules(nothing.text, source=nothing.source) == rules.Rules()


def test_network_levels_of_the_scheduler_are_those_of_commands(tmp_path: Path) -> None:
    """A simulation on this machine forms the same network blocks."""
    (tmp_path / "config.yaml").write_text("scheduler: {network_levels: [zone, rack]}")
    assert rules.of_file(str(tmp_path / "config.yaml")).network_levels == ("zone", "rack")
