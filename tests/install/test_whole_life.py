"""Install, use, upgrade, change and remove Tranche as an administrator does, with its processes as pods."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import pytest
import yaml

from allocation.names import ALLOCATION
from cli.preflight.installation import DEFINITIONS
from lab import kubectl, wait
from lab.image import build
from lab.layout import Layout
from tests.install.conftest import (
    CARD_MIB,
    CARDS,
    PATIENCE_S,
    ROOT,
    SYSTEM,
    Admissions,
    cards,
    gpu_pod,
    inventory,
    ready,
)

pytestmark = [
    pytest.mark.apiserver,
    pytest.mark.kubelet,
    pytest.mark.image,
    pytest.mark.helm,
    pytest.mark.timeout(1800),
]
CHART = str(ROOT / "charts" / "tranche")
TEAM = "install-team"
SIMULATED = (
    f"--set-json=agent.extraEnv={json.dumps([{'name': 'CUDA_VISIBLE_DEVICES', 'value': ','.join(CARDS)}])}",
    f"--set=config.agent.default_card.memory_mib={CARD_MIB}",
    "--set=config.agent.publish_seconds=2",
)


def use(layout: Layout) -> None:
    """Create a pod in an opted-in namespace, check its slice from inside, and delete it."""
    kubectl.run(layout, "create", "namespace", TEAM)
    kubectl.run(layout, "label", "namespace", TEAM, "gpu.scheduling/injection=enabled")
    wait.until(
        lambda: kubectl.run(layout, "-n", TEAM, "get", "serviceaccount", "default", "--ignore-not-found"),
        what="ServiceAccount default",
        timeout_s=PATIENCE_S,
    )
    kubectl.run(layout, "-n", TEAM, "create", "-f", "-", stdin=json.dumps(gpu_pod("slice")))
    kubectl.run(layout, "-n", TEAM, "wait", "--for=condition=Ready", "pod/slice", "--timeout=50s")
    pod = kubectl.get(layout, "-n", TEAM, "pod", "slice")
    assert pod["spec"]["schedulerName"] == "tranche"
    assert ALLOCATION in pod["metadata"]["annotations"]
    seen = dict(
        line.partition("=")[::2] for line in kubectl.run(layout, "-n", TEAM, "exec", "slice", "--", "env").splitlines()
    )
    assert seen["CUDA_VISIBLE_DEVICES"] in CARDS
    assert seen["CUDA_DEVICE_MEMORY_LIMIT_0"] == "3000m"
    kubectl.run(layout, "-n", TEAM, "delete", "pod", "slice")


def clean_up(layout: Layout) -> None:
    """Remove what docs/install.md says that an uninstallation leaves, and the user's namespace."""
    kubectl.run(layout, "annotate", "nodes", "--all", "hami.io/node-nvidia-register-")
    kubectl.run(layout, "delete", "namespace", TEAM, SYSTEM, "--ignore-not-found", "--timeout=50s")


def test_whole_life_with_helm(installable: Layout, helm: Callable[..., str]) -> None:
    """Install, a slice, `helm test`, an upgrade under load without a failed admission, a changed value, and removal."""
    before = inventory(installable)
    helm("install", "tranche", CHART, "--create-namespace", *SIMULATED)
    kubectl.run(installable, "label", "namespace", SYSTEM, "pod-security.kubernetes.io/enforce=restricted")
    ready(installable)
    use(installable)
    printed = helm("test", "tranche")
    assert "a GPU pod is admitted" in printed
    assert "mode: loop; Tranche is installed" in printed

    with Admissions(installable, TEAM).running() as load:
        helm("upgrade", "tranche", CHART, "--reuse-values", "--set=image.tag=newer")
        ready(installable)
    images = {
        container["image"]
        for pod in kubectl.get(installable, "-n", SYSTEM, "pods", "-l", "app.kubernetes.io/name=tranche")["items"]
        if "deletionTimestamp" not in pod["metadata"]
        for container in pod["spec"]["containers"]
    }
    assert images == {"tranche:newer"}
    assert load.failed == []
    assert load.admitted > 100

    helm("upgrade", "tranche", CHART, "--reuse-values", "--set=config.agent.slots=7")
    ready(installable)
    wait.until(
        lambda: {card["slots"] for card in cards(installable)} == {7}, what="7 slots a card", timeout_s=PATIENCE_S
    )

    helm("uninstall", "tranche", "--wait")
    clean_up(installable)
    assert inventory(installable) - before == set()


def test_crds_are_kept_if_asked(installable: Layout, helm: Callable[..., str]) -> None:
    """Only the definitions, and the objects of them that exist, survive."""
    before = inventory(installable)
    helm("install", "tranche", CHART, "--create-namespace", "--set=crds.keep=true", *SIMULATED)
    ready(installable)
    helm("uninstall", "tranche", "--wait")
    clean_up(installable)
    kinds = {line.split()[0] for line in inventory(installable) - before}
    # The API server keeps an APIService for each group of definitions.
    assert kinds == {"CustomResourceDefinition", "GpuNodeStatus", "APIService"}
    kubectl.run(
        installable,
        "delete",
        "crd",
        *DEFINITIONS,
    )


def test_whole_life_with_kustomize(installable: Layout, tmp_path: Path) -> None:
    """The same objects by kubectl alone: install, a slice, an upgrade under load, and removal."""
    before = inventory(installable)
    environment = {"name": "CUDA_VISIBLE_DEVICES", "value": ",".join(CARDS)}
    path = "/spec/template/spec/containers/0"
    flags = [f"--default-card-memory-mib={CARD_MIB}", "--publish-seconds=2"]
    patch = [
        {"op": "add", "path": f"{path}/env/-", "value": environment},
        {"op": "add", "path": f"{path}/args", "value": flags},
    ]
    relative = Path("../" * (len(tmp_path.parts) - 1)) / str(ROOT / "manifests" / "install").lstrip("/")
    overlay = {
        "resources": [str(relative)],
        "patches": [{"target": {"kind": "DaemonSet", "name": "tranche-agent"}, "patch": yaml.safe_dump(patch)}],
        "images": [{"name": "tranche", "newTag": build.version()}],
    }
    file = tmp_path / "kustomization.yaml"
    file.write_text(yaml.safe_dump(overlay))
    kubectl.run(installable, "apply", "-f", str(ROOT / "manifests" / "base" / "crds"))
    kubectl.run(installable, "apply", "-k", str(tmp_path))
    ready(installable)
    use(installable)

    overlay["images"] = [{"name": "tranche", "newTag": "newer"}]
    file.write_text(yaml.safe_dump(overlay))
    with Admissions(installable, TEAM).running() as load:
        kubectl.run(installable, "apply", "-k", str(tmp_path))
        ready(installable)
    assert load.failed == []
    assert load.admitted > 100

    kubectl.run(installable, "delete", "-k", str(tmp_path), "--timeout=50s")
    clean_up(installable)
    assert inventory(installable) - before == set()
