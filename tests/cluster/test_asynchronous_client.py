"""A process has only the Kubernetes client that it uses."""

import subprocess
import sys


def _modules(program: str) -> set[str]:
    command = [sys.executable, "-c", f"{program}; import sys; print(*sys.modules)"]
    return {*subprocess.run(command, capture_output=True, text=True, timeout=60, check=True).stdout.split()}


def test_the_synchronous_client_is_not_imported() -> None:
    """It would cost each process time and memory."""
    modules = _modules("import cluster.connect")
    assert "kubernetes.aio.config.kube_config" in modules
    assert {"kubernetes.client", "kubernetes.config", "requests_oauthlib"}.isdisjoint(modules)


def test_the_synchronous_client_may_be_imported_later_or_before() -> None:
    """Another part of a process may use it."""
    for program in (
        "import cluster.connect; from kubernetes.client import CoreV1Api",
        "from kubernetes.client import CoreV1Api; import cluster.connect",
    ):
        assert {"kubernetes.client", "kubernetes.aio.config.kube_config"} <= _modules(program)
