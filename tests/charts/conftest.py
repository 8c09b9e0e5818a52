"""Render the chart with Helm and the manifests with kustomize, in one form that can be compared."""

from __future__ import annotations

import re
import subprocess
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import yaml

from lab import binaries, helm_binary, manifests
from lab.go_module import GoModule

ROOT = Path(__file__).parents[2]
CHART = ROOT / "charts" / "tranche"
GPU_SCHEDULER = ROOT / "charts" / "gpu-scheduler"
ON_THE_NODES = "--set=image.registry="
"""The value that has to be set: no registry, because each node has the image."""
Objects = dict[tuple[str, str, str], dict[str, Any]]
Helm = Callable[..., subprocess.CompletedProcess[str]]


@pytest.fixture(scope="session")
def helm() -> Helm:
    """`helm(*arguments)` with Helm 3, which does not raise."""
    return _runner(helm_binary.HELM_3)


@pytest.fixture(scope="session")
def helm_4() -> Helm:
    """`helm_4(*arguments)` with Helm 4, which does not raise."""
    return _runner(helm_binary.HELM_4)


def _runner(module: GoModule) -> Helm:
    program = helm_binary.provide(module)

    def run(*arguments: str) -> subprocess.CompletedProcess[str]:
        return subprocess.run([program, *arguments], capture_output=True, text=True, timeout=60, check=False)

    return run


@pytest.fixture
def render(helm: Helm) -> Callable[..., Objects]:
    """`render("key=value", …)`: the objects of the chart, without those of `helm test`."""
    return lambda *values: _rendered(helm, CHART, "tranche-system", *values)


@pytest.fixture
def render_gpu_scheduler(helm: Helm) -> Callable[..., Objects]:
    """As `render`, for charts/gpu-scheduler as the release `gpu-scheduler` in the namespace of that name."""
    return lambda *values: _rendered(helm, GPU_SCHEDULER, "gpu-scheduler", *values)


def _rendered(helm: Helm, chart: Path, namespace: str, *values: str) -> Objects:
    flags = (f"--set={each}" for each in values)
    done = helm("template", chart.name, str(chart), f"--namespace={namespace}", ON_THE_NODES, *flags)
    assert done.returncode == 0, done.stderr
    return {key: each for key, each in objects(done.stdout).items() if not is_test(each)}


@pytest.fixture(scope="session")
def kustomize(tmp_path_factory: pytest.TempPathFactory) -> Callable[..., Objects]:
    """`kustomize(resources, components)`: the objects of an overlay of folders in manifests/."""
    folder = tmp_path_factory.mktemp("kustomize")
    binaries.provide(folder, ("kubectl",))

    def run(*resources: str, components: tuple[str, ...] = ()) -> Objects:
        overlay = folder / "-".join((*resources, *components)).replace("/", "-")
        overlay.mkdir(exist_ok=True)
        manifests = Path("../" * len(overlay.parts[1:])) / str(ROOT / "manifests").lstrip("/")
        names = {"resources": resources, "components": components}
        (overlay / "kustomization.yaml").write_text(
            yaml.safe_dump({kind: [str(manifests / each) for each in folders] for kind, folders in names.items()})
        )
        done = subprocess.run(
            [folder / "kubectl", "kustomize", "--load-restrictor=LoadRestrictionsNone", overlay],
            capture_output=True,
            text=True,
            timeout=60,
            check=False,
        )
        assert done.returncode == 0, done.stderr
        return objects(done.stdout)

    return run


def objects(text: str) -> Objects:
    """Return the objects of a stream by kind, namespace and name, each normalised."""
    return {identity(each): dict(_normalised(each)) for each in manifests.read(text)}


def identity(each: dict[str, Any]) -> tuple[str, str, str]:
    """Return kind, namespace and name of an object."""
    return each["kind"], each["metadata"].get("namespace", ""), each["metadata"]["name"]


def is_test(each: dict[str, Any]) -> bool:
    """Whether an object belongs to `helm test`."""
    return "helm.sh/hook" in each["metadata"].get("annotations", {})


def _normalised(node: Any) -> Any:
    """Return what both programs agree on: they fold long lines differently, and only Helm notes a checksum."""
    if isinstance(node, dict):
        entries = {key: _normalised(value) for key, value in node.items() if key != "checksum/config"}
        if isinstance(entries.get("config.yaml"), str):
            entries["config.yaml"] = yaml.safe_load(node["config.yaml"])
        if entries.get("annotations") == {}:
            del entries["annotations"]
        return entries
    if isinstance(node, list):
        return [_normalised(each) for each in node]
    return re.sub(r"\s+", " ", node).strip() if isinstance(node, str) else node
