"""Queries by tenants, on a real API server: with a role in one namespace, through the API server's proxy."""

from __future__ import annotations

import http.client
import json
import ssl
import subprocess
from contextlib import closing
from typing import TYPE_CHECKING, Any

import pytest
import yaml

from cluster import version
from lab import kubectl, scheduler_service, wait
from lab.layout import Port
from scheduler.api.namespaced.paths import PROXY, TOKEN_HEADER
from tests.support import gpu_command
from tests.support.patience import PATIENCE_S
from tests.system.conftest import Namespace, pod
from tests.system.support import tenants
from tests.system.support.tenants import Tenant

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from lab.layout import Layout

pytestmark = pytest.mark.apiserver


@pytest.fixture
def other_namespace(make_namespace: Callable[..., Namespace]) -> Iterator[Namespace]:
    """The namespace of another tenant, with a pod that must stay confidential."""
    made = make_namespace()
    made.create(pod("confidential", node="gpu-sim-0", gpu=1, gpumem=12345))
    made.placed(1)
    yield made
    made.empty()


@pytest.fixture
def editor(namespace: Namespace) -> Tenant:
    """An account with `edit` in the namespace."""
    return tenants.account(namespace, "editor", role="edit")


@pytest.fixture
def viewer(namespace: Namespace) -> Tenant:
    """An account with `view` in the namespace."""
    return tenants.account(namespace, "viewer", role="view")


def seen(tenant: Tenant, name: str) -> dict[str, Any]:
    """Wait until the scheduler has seen a pod and return its explanation."""

    def explanation() -> dict[str, Any] | None:
        done = tenants.gpu(tenant, "explain", name, "-o", "json", "--node", "gpu-sim-0")
        assert done.returncode == 0 or "does not exist" in done.stderr, done.stderr
        content: dict[str, Any] | None = json.loads(done.stdout) if done.returncode == 0 else None
        return content

    return wait.until(explanation, what=f"the explanation of {name}", timeout_s=PATIENCE_S)


def test_owner_of_a_pod_can_query_the_scheduler(
    namespace: Namespace, other_namespace: Namespace, editor: Tenant, viewer: Tenant
) -> None:
    """With `edit` or `view` in one namespace `explain`, `env` and `top` work; `simulate` and `capacity` need `edit`."""
    namespace.create(pod("mine", gpu=1, gpumem=1000), pod("waits", gpu=1, gpumem=999999))
    namespace.placed(1)
    reason = namespace.unplaced("waits")
    for tenant in (editor, viewer):
        waits = seen(tenant, "waits")
        assert (waits["outcome"], waits["note"]) == ("waits", reason)
        assert seen(tenant, "mine")["outcome"] == "bound"
        explained = tenants.gpu(tenant, "explain", "waits", "--node", "gpu-sim-0")
        assert "the largest card in this cluster has 81920 MiB" in explained.stdout
        assert "the scheduler was asked instead" in explained.stderr
        environment = tenants.gpu(tenant, "env", "mine")
        assert "NVIDIA_VISIBLE_DEVICES" in environment.stdout
        (node,) = json.loads(tenants.gpu(tenant, "top", "-n", namespace.name, "-o", "json").stdout)["nodes"]
        assert [(card["memoryMiB"]["used"], card["shares"][0]["pod"]) for card in node["cards"]] == [(1000, "mine")]
        (share,) = json.loads(tenants.gpu(tenant, "top", "--usage", "-o", "json").stdout)["shares"]
        assert [share[key] for key in ("pod", "memoryMiB", "memoryUsedMiB", "use")] == ["mine", 1000, None, "unknown"]
    manifest = json.dumps(pod("asks", gpu=1, gpumem=1000))
    simulated = tenants.gpu(editor, "simulate", "-f", "-", "-o", "json", stdin=manifest)
    assert simulated.returncode == 0, simulated.stderr
    assert json.loads(simulated.stdout)["items"][0]["simulation"]["explanation"]["outcome"] == "fits"
    for arguments in ((), ("-f", "-")):
        counted = tenants.gpu(editor, "capacity", *arguments, "-o", "json", stdin=manifest)
        assert counted.returncode == 0, counted.stderr
        shape = json.loads(counted.stdout)["now"]["shapes"][0]
        assert shape["name"] == ("Pod asks" if arguments else "whole card")
        assert shape["count"] > 0
        assert shape["nodes"] == []
    for command in ("simulate", "capacity"):
        refused = tenants.gpu(viewer, command, "-f", "-", stdin=manifest)
        assert refused.returncode == 1
        assert f"viewer cannot create pods in namespace {namespace.name}" in refused.stderr


def test_queries_reveal_nothing_of_other_namespaces(
    namespace: Namespace, other_namespace: Namespace, editor: Tenant
) -> None:
    """No output format contains names or numbers of another namespace's pods, and queries about its pods fail."""
    namespace.create(pod("waits", node="gpu-sim-0", gpu=8, gpumem=70000))
    namespace.unplaced("waits")
    seen(editor, "waits")
    manifest = json.dumps(pod("asks", node="gpu-sim-0", gpu=8, gpumem=70000))
    for arguments, stdin in (
        (("explain", "waits"), ""),
        (("simulate", "-f", "-"), manifest),
        (("capacity",), ""),
        (("capacity", "-f", "-"), manifest),
        (("top",), ""),
        (("top", "--usage"), ""),
    ):
        extra = ("--node", "gpu-sim-0") if arguments[0] in ("explain", "simulate") else ()
        for output in ("table", "wide", "json", "yaml"):
            done = tenants.gpu(editor, *arguments, *extra, "-o", output, stdin=stdin)
            text = done.stdout + done.stderr
            assert done.returncode in (0, 1)
            for secret in ("confidential", other_namespace.name, "12345", str(81920 - 12345)):
                assert secret not in text, (arguments, output, secret)
    others = tenants.gpu(editor, "explain", "confidential", "-n", other_namespace.name)
    assert others.returncode == 1
    assert "confidential is bound" not in others.stdout
    top = tenants.gpu(editor, "top", "-n", other_namespace.name)
    assert (top.returncode, f"editor cannot list pods in namespace {other_namespace.name}" in top.stderr) == (1, True)


def test_explain_covers_the_pods_of_a_workload(namespace: Namespace, viewer: Tenant) -> None:
    """`explain deploy/web` explains each of its pods; for a workload without pods it says where to look."""
    template = {"metadata": {"labels": {"app": "web"}}, "spec": {**pod("x", gpu=1, gpumem=1000)["spec"]}}
    del template["spec"]["terminationGracePeriodSeconds"]
    deployment = {
        "apiVersion": "apps/v1",
        "kind": "Deployment",
        "metadata": {"name": "web"},
        "spec": {"replicas": 2, "selector": {"matchLabels": {"app": "web"}}, "template": template},
    }
    empty = {**deployment, "metadata": {"name": "none"}, "spec": {**deployment["spec"], "replicas": 0}}  # type: ignore[dict-item]
    empty["spec"] = json.loads(json.dumps(empty["spec"]).replace('"web"', '"none"'))
    namespace.create(deployment, empty)
    namespace.placed(2)

    def items() -> list[dict[str, Any]]:
        done = tenants.gpu(viewer, "explain", "deploy/web", "-o", "json")
        explained: list[dict[str, Any]] = json.loads(done.stdout)["items"] if done.returncode == 0 else []
        return explained

    wait.until(
        lambda: [each["outcome"] for each in items()] == ["bound"] * 2, what="both pods explained", timeout_s=PATIENCE_S
    )
    lines = tenants.gpu(viewer, "explain", "deployment/web").stdout.splitlines()
    assert sum(" is bound to " in line for line in lines) == 2
    nothing = tenants.gpu(viewer, "explain", "deploy/none")
    assert (nothing.returncode, "has no pods; see 'kubectl describe" in nothing.stderr) == (1, True)


def test_client_certificate_needs_a_token_as_well(tranche: Layout, namespace: Namespace, editor: Tenant) -> None:
    """An account with a client certificate only is asked for a token, and --token works."""
    namespace.create(pod("mine", gpu=1, gpumem=1000))
    namespace.placed(1)
    seen(editor, "mine")
    with_certificate = yaml.safe_load(tranche.kubeconfig.read_text())
    address = f"https://{scheduler_service.address(tranche)}:{tranche.port(Port.SCHEDULER_API)}"
    token = yaml.safe_load(editor.kubeconfig.read_text())["users"][0]["user"]["token"]
    assert "client-certificate-data" in with_certificate["users"][0]["user"]

    def top(*arguments: str) -> subprocess.CompletedProcess[str]:
        return gpu_command.run(tranche.kubeconfig, "top", "-n", namespace.name, *arguments)

    refused = top("--scheduler-url", address)
    assert refused.returncode == 1
    assert f'--token "$(kubectl create token SERVICEACCOUNT -n {namespace.name})"' in refused.stderr
    done = top("--token", token)
    assert (done.returncode, "gpu-" in done.stdout) == (0, True), done.stderr


def test_version_of_the_scheduler_needs_no_token_of_it(tranche: Layout, viewer: Tenant) -> None:
    """Every account may read it through the API server's proxy, also one with only a client certificate."""
    own = version.own().version
    for each in (viewer, Tenant("default", tranche.kubeconfig)):
        done = tenants.gpu(each, "version")
        assert (done.stdout, done.stderr) == (f"Client Version: {own}\nScheduler Version: {own}\n", "")


def test_proxy_forwards_the_token_header_only(tranche: Layout, namespace: Namespace, viewer: Tenant) -> None:
    """Without the header no token reaches the scheduler, and a forged token in it is rejected."""
    token = yaml.safe_load(viewer.kubeconfig.read_text())["users"][0]["user"]["token"]
    tls = ssl.create_default_context(cafile=tranche.pki / "ca.crt")
    path = f"{PROXY}/api/namespaces/{namespace.name}/shares"

    def query(**headers: str) -> tuple[int, str]:
        port = tranche.port(Port.KUBE_APISERVER)
        with closing(http.client.HTTPSConnection("127.0.0.1", port, context=tls)) as connection:
            connection.request("GET", path, headers={"Authorization": f"Bearer {token}", **headers})
            response = connection.getresponse()
            return response.status, response.read().decode()

    status, body = query()
    assert (status, "a bearer token is needed" in body) == (401, True)
    assert query(**{TOKEN_HEADER: "forged"})[0] == 401
    assert query(**{TOKEN_HEADER: token})[0] == 200
    assert token not in (tranche.logs / "scheduler.log").read_text()
    assert token not in tranche.audit_log.read_text()


def test_proxy_right_covers_only_one_port_of_one_service(tranche: Layout, viewer: Tenant) -> None:
    """Every authenticated account has this right."""
    for what, name in (
        ("services/proxy", "https:tranche-webhook:reviews"),
        ("services/proxy", "tranche-scheduler"),
        ("pods/proxy", "tranche-scheduler"),
        ("services", "tranche-scheduler"),
    ):
        resource, _, subresource = what.partition("/")
        arguments = [f"{resource}/{name}", *([f"--subresource={subresource}"] if subresource else [])]
        user = f"system:serviceaccount:{viewer.namespace}:viewer"
        command = [
            str(tranche.bin / "kubectl"),
            f"--kubeconfig={tranche.kubeconfig}",
            "auth",
            "can-i",
            "get",
            *arguments,
        ]
        done = subprocess.run(
            [*command, "-n", "tranche-system", "--as", user], capture_output=True, text=True, check=False, timeout=30
        )
        assert done.stdout.strip() == "no", what
    allowed = kubectl.run(
        *(tranche, "auth", "can-i", "get", "services/https:tranche-scheduler:api", "--subresource=proxy"),
        *("-n", "tranche-system", "--as", "system:serviceaccount:x:y", "--as-group", "system:authenticated"),
    )
    assert allowed.strip() == "yes"
