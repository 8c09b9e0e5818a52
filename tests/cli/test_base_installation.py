"""`kubectl gpu` from the wheel, with only the packages that the wheel requires without an extra."""

import os
import subprocess
import sys
import zipfile
from collections.abc import Callable, Iterator
from http.server import BaseHTTPRequestHandler
from importlib import metadata
from pathlib import Path

import msgspec
import pytest
from packaging.requirements import Requirement

from cli import commands
from lab.release import wheel
from scheduler.api.explanation_types import Explanation
from scheduler.api.namespaced.paths import PROXY
from tests.cli.support.http_server import serving

Run = Callable[..., "subprocess.CompletedProcess[str]"]

NAMES = [name for name, _ in commands.every()]
SERVERS = {"numpy", "uvloop", "kubernetes", "prometheus-client", "nvidia-ml-py"}
IMPORT_ALL = """
import importlib
from cli import commands
for _, command in commands.every():
    importlib.import_module(command.module)
from cli.completion import complete_cluster
from cli.top import watch
"""
# The libraries are loaded first: how these behave on Windows is their own matter.
LIKE_WINDOWS = """
import asyncio, http.client, multiprocessing, ssl, subprocess, tempfile
import aiohttp, cryptography.x509, jsonpatch, msgspec, sortedcontainers, tabulate, yaml
import os, signal, sys
for name in ("fcntl", "termios", "tty", "pty", "pwd", "grp", "resource", "syslog", "uvloop"):
    sys.modules[name] = None
for name in ("getuid", "geteuid", "getgid", "fork", "uname", "killpg", "setsid"):
    delattr(os, name)
for name in ("SIGPIPE", "SIGHUP", "SIGKILL", "SIGALRM", "SIGUSR1"):
    delattr(signal, name)
sys.platform = "win32"
"""
MAIN = "import sys; from cli.__main__ import main; sys.exit(main())"
POD = """\
apiVersion: v1
kind: Pod
metadata: {name: web, annotations: {note: "\u00fcber \u6771\u4eac"}}
spec:
  containers: [{name: main, image: x, resources: {limits: {nvidia.com/gpu: 1}}}]
"""


def required(name: str, *, seen: set[str] | None = None) -> set[str]:
    """Return a distribution and all that it requires without extras, in lower case."""
    seen = set() if seen is None else seen
    if name not in seen:
        seen.add(name)
        for text in metadata.requires(name) or ():
            requirement = Requirement(text)
            if requirement.marker is None or requirement.marker.evaluate({"extra": ""}):
                required(requirement.name.lower(), seen=seen)
    return seen


@pytest.fixture(scope="module")
def installation(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with the wheel's content, and links to the packages that it requires, from this environment."""
    folder = tmp_path_factory.mktemp("base")
    built = wheel.build(tmp_path_factory.mktemp("wheel"))
    zipfile.ZipFile(built).extractall(folder)
    own = next(folder.glob("tranche-*.dist-info"))
    declared = [Requirement(text) for text in metadata.PathDistribution(own).requires or ()]
    needed: set[str] = set()
    for each in declared:
        if each.marker is None or each.marker.evaluate({"extra": ""}):
            required(each.name.lower(), seen=needed)
    assert not needed & SERVERS
    for name in needed:
        distribution = metadata.distribution(name)
        for top in {file.parts[0] for file in distribution.files or () if file.parts[0] != ".."}:
            if not (folder / top).exists():
                (folder / top).symlink_to(Path(str(distribution.locate_file(top))))
    return folder


@pytest.fixture
def python(installation: Path, tmp_path: Path) -> Run:
    """Run a program with these packages only, in an empty folder and without a cluster."""

    def run(program: str, *arguments: str, **variables: str) -> "subprocess.CompletedProcess[str]":
        kept = {name: value for name, value in os.environ.items() if not name.startswith(("KUBE", "PYTHON"))}
        return subprocess.run(
            [sys.executable, "-S", "-c", program, *arguments],
            cwd=tmp_path,
            env={**kept, "HOME": str(tmp_path), "PYTHONPATH": str(installation), **variables},
            capture_output=True,
            encoding="utf-8",
            timeout=60,
            check=False,
        )

    return run


@pytest.fixture
def kubeconfig(tmp_path: Path) -> Iterator[str]:
    """A cluster in which the user may read one pod, and the scheduler explains it."""
    pod = {"metadata": {"name": "web", "namespace": "default", "uid": "1"}, "spec": {"containers": []}}
    bodies = {
        "/api/v1/namespaces/default/pods/web": pod,
        f"{PROXY}/api/namespaces/default/pods/web/explanation": Explanation(
            "default", "web", "waits", "waits: no node"
        ),
    }

    def respond(request: BaseHTTPRequestHandler) -> tuple[int, bytes]:
        body = bodies.get(request.path.partition("?")[0])
        return (403, b"{}") if body is None else (200, msgspec.json.encode(body))

    with serving(respond) as url:
        file = tmp_path / "kubeconfig"
        file.write_text(f"""
contexts: [{{name: c, context: {{cluster: c, user: u}}}}]
current-context: c
clusters: [{{name: c, cluster: {{server: "{url}"}}}}]
users: [{{name: u, user: {{token: t}}}}]
""")
        yield str(file)


def test_the_wheel_has_what_runs_in_a_cluster_and_no_more(installation: Path) -> None:
    """The lab, the faults and the tests need a checkout: they are not on the machines of users, nor in the image."""
    own = next(installation.glob("tranche-*.dist-info"))
    tops = {file.parts[0] for file in metadata.PathDistribution(own).files or ()}
    assert tops - {own.name} == {"agent", "allocation", "certs", "cli", "cluster", "scheduler", "webhook"}


@pytest.mark.parametrize("process", ["webhook", "scheduler", "agent"])
def test_executables_say_which_extra_they_need(python: Run, installation: Path, process: str) -> None:
    """One line instead of a traceback; the executable is the one that the wheel installs."""
    own = metadata.PathDistribution(next(installation.glob("tranche-*.dist-info")))
    (script,) = own.entry_points.select(group="console_scripts", name=f"tranche-{process}")
    done = python(f"from {script.module} import {script.attr}; {script.attr}()", "--help")
    assert done.returncode == 1
    assert done.stderr.startswith(f"tranche-{process}: the Python package ")
    assert done.stderr.endswith("is not installed; install tranche with the extra 'server' (docs/install.md)\n")
    assert done.stderr.count("\n") == 1


def test_version_and_help_work(python: Run) -> None:
    """The command starts, and every subcommand has its help."""
    assert python(MAIN, "version", "--client").stdout.startswith("Client Version: ")
    for name in NAMES:
        done = python(MAIN, name, "--help")
        assert (done.returncode, done.stderr) == (0, ""), name


@pytest.mark.parametrize("platform", ["", LIKE_WINDOWS], ids=["here", "like Windows"])
def test_every_command_is_loaded(python: Run, platform: str) -> None:
    """No command imports a package of the processes, or a module that only some platforms have."""
    done = python(platform + IMPORT_ALL)
    assert (done.returncode, done.stderr) == (0, "")


@pytest.mark.parametrize("platform", ["", LIKE_WINDOWS], ids=["here", "like Windows"])
def test_without_numpy_the_scheduler_explains(python: Run, kubeconfig: str, platform: str) -> None:
    """A note names the package that is missing."""
    done = python(platform + MAIN, "explain", "web", "--kubeconfig", kubeconfig)
    assert done.stdout.startswith("pod default/web waits: no node")
    assert done.stderr.startswith(
        "note: the Python package numpy is not installed, so the scheduler was asked instead;"
    )


def test_queues_name_the_extra(python: Run, kubeconfig: str) -> None:
    """They are counted with numpy."""
    done = python(MAIN, "queues", "--kubeconfig", kubeconfig)
    assert (done.returncode, done.stdout) == (1, "")
    assert "numpy is not installed; install kubectl-gpu with the extra 'server'" in done.stderr


def test_quotas_are_counted_without_numpy(python: Run, kubeconfig: str) -> None:
    """A user with rights in one namespace may have only the base package; here the server refuses every list."""
    done = python(MAIN, "quota", "--kubeconfig", kubeconfig)
    assert "list gpuquotas in namespace default" in done.stderr
    assert "numpy" not in done.stderr


@pytest.mark.parametrize("platform", ["", LIKE_WINDOWS], ids=["here", "like Windows"])
def test_output_is_utf8_with_plain_newlines(python: Run, tmp_path: Path, platform: str) -> None:
    """As kubectl writes it, whatever the locale."""
    (tmp_path / "pod.yaml").write_text(POD, encoding="utf-8")
    done = python(platform + MAIN, "inject", "-f", "pod.yaml", PYTHONIOENCODING="latin-1", PYTHONUTF8="0")
    assert done.returncode == 0, done.stderr
    assert "\u6771\u4eac" in done.stdout
    assert "\r" not in done.stdout


def test_auth_provider_names_the_extra(python: Run, kubeconfig: str) -> None:
    """Only the library of the processes supports what kubectl has removed."""
    file = Path(kubeconfig)
    file.write_text(file.read_text().replace("{token: t}", "{auth-provider: {name: oidc}}"))
    done = python(MAIN, "env", "web", "--kubeconfig", kubeconfig)
    assert done.returncode == 1
    assert "kubernetes is not installed; install kubectl-gpu with the extra 'server'" in done.stderr
