"""Install, use, upgrade, change and remove Tranche as an administrator does, with its processes as pods."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import pytest
import yaml

from allocation.names import ALLOCATION
from cli.preflight.installation import DEFINITIONS
from lab import helm_installation, kubectl, wait
from lab.client import client
from lab.errors import LabError
from lab.image import build
from lab.layout import Layout
from tests.install import older_image
from tests.install.conftest import CARD_MIB, CARDS, ROOT, SYSTEM, Admissions, gpu_pod, inventory, ready, reported
from tests.support import namespaces
from tests.support.patience import KUBECTL_PATIENCE, PATIENCE_S

pytestmark = [
    pytest.mark.apiserver,
    pytest.mark.kubelet,
    pytest.mark.image,
    pytest.mark.helm,
    pytest.mark.timeout(1800),
]
CHART = str(ROOT / "charts" / "tranche")
TEAM = "install-team"
COMPONENTS = ("webhook", "scheduler", "agent")
KEPT = frozenset({"CustomResourceDefinition", "GpuNodeStatus", "APIService"})
"""With `crds.keep`; the API server keeps an APIService for each group of definitions."""
LEFT = frozenset(
    {
        f"Namespace  {SYSTEM}",
        f"Secret {SYSTEM} tranche-webhook-ca",
        f"Pod {SYSTEM} tranche-test",
        # What Kubernetes puts into every namespace.
        f"ConfigMap {SYSTEM} kube-root-ca.crt",
        f"ServiceAccount {SYSTEM} default",
    }
)
"""What an uninstallation with Helm leaves, as docs/install.md says: kind, namespace and name."""
SIMULATED = helm_installation.VALUES


def use(layout: Layout) -> None:
    """Create a pod in an opted-in namespace, and check its slice from inside."""
    namespaces.create(layout, TEAM, {"gpu.scheduling/injection": "enabled"})
    client(layout).create(gpu_pod("slice"), namespace=TEAM)
    pod = started(layout, "slice")
    assert pod["spec"]["schedulerName"] == "tranche"
    seen = dict(
        line.partition("=")[::2] for line in kubectl.run(layout, "-n", TEAM, "exec", "slice", "--", "env").splitlines()
    )
    assert seen["CUDA_VISIBLE_DEVICES"] in CARDS
    assert seen["CUDA_DEVICE_MEMORY_LIMIT_0"] == "3000m"


def started(layout: Layout, name: str) -> dict[str, Any]:
    """Wait until a pod of the user is ready, and return it."""

    def ready_pod(pods: Mapping[str, Any]) -> dict[str, Any] | None:
        conditions = pods[name]["status"].get("conditions", [])
        is_ready = any((each["type"], each["status"]) == ("Ready", "True") for each in conditions)
        return pods[name] if is_ready else None

    return client(layout).until(ready_pod, "pods", namespace=TEAM, what=f"pod {name}", timeout_s=PATIENCE_S)


def versions(layout: Layout) -> dict[str, str]:
    """Return what the running pods of Tranche say that their version is, by component, asked inside of each."""
    ask = ("python3", "-c", "from importlib import metadata; print(metadata.version('tranche'))")
    said: dict[str, set[str]] = defaultdict(set)
    for pod in client(layout).list("pods", namespace=SYSTEM, labels="app.kubernetes.io/name=tranche"):
        if "deletionTimestamp" not in pod["metadata"] and pod["status"]["phase"] == "Running":
            name, component = pod["metadata"]["name"], pod["metadata"]["labels"]["app.kubernetes.io/component"]
            said[component].add(kubectl.run(layout, "-n", SYSTEM, "exec", name, "--", *ask).strip())
    return {component: ", ".join(sorted(found)) for component, found in said.items()}


def has_lost_nothing(layout: Layout, before: dict[str, Any]) -> None:
    """Check that a pod from before the upgrade runs on with its slice, and that its slice is still counted.

    Two pods take what both cards have left next to the slice; after them not one MiB more is placed.
    """
    after = client(layout).get("pod", "slice", namespace=TEAM)
    assert after["metadata"]["uid"] == before["metadata"]["uid"]
    assert after["metadata"]["annotations"][ALLOCATION] == before["metadata"]["annotations"][ALLOCATION]
    assert after["status"]["containerStatuses"] == before["status"]["containerStatuses"]
    for name, memory in (("whole", CARD_MIB), ("rest", CARD_MIB - 3000)):
        client(layout).create(gpu_pod(name, memory_mib=memory), namespace=TEAM)
        started(layout, name)
    client(layout).create(gpu_pod("too-much", memory_mib=1), namespace=TEAM)

    def refused(pods: Mapping[str, Any]) -> bool:
        assert "nodeName" not in pods["too-much"]["spec"], "both cards are full"
        conditions = pods["too-much"]["status"].get("conditions", [])
        return any(each.get("reason") == "Unschedulable" for each in conditions)

    client(layout).until(refused, "pods", namespace=TEAM, what="the reason of the last pod", timeout_s=PATIENCE_S)
    client(layout).delete_all("pods", namespace=TEAM)


def leave_nothing(
    layout: Layout, before: set[str], *, left: frozenset[str], kept: frozenset[str] = frozenset()
) -> None:
    """Check that an uninstallation left only what docs/install.md says, then remove that, and the user's namespace.

    Args:
        layout: the cluster.
        before: the objects before the installation.
        left: the objects that the page says are left.
        kept: the kinds of which objects are meant to survive.
    """

    def unknown() -> set[str]:
        found = {each for each in inventory(layout) - before - left if each.split()[0] not in kept}
        return {each for each in found if TEAM not in each.split()}

    try:
        wait.until(lambda: not unknown(), what="the end of pods and their objects", timeout_s=PATIENCE_S)
    except LabError as error:
        raise AssertionError(sorted(unknown())) from error
    kubectl.run(layout, "annotate", "nodes", "--all", "hami.io/node-nvidia-register-")
    kubectl.run(layout, "delete", "namespace", TEAM, SYSTEM, "--ignore-not-found", KUBECTL_PATIENCE)


def test_whole_life_with_helm(installable: Layout, helm: Callable[..., str]) -> None:
    """Install, a slice, `helm test`, an upgrade under load without a failed admission, a changed value, and removal."""
    before = inventory(installable)
    helm("install", "tranche", CHART, "--create-namespace", f"--set=image.tag={older_image.VERSION}", *SIMULATED)
    client(installable).patch(
        "namespace", SYSTEM, {"metadata": {"labels": {"pod-security.kubernetes.io/enforce": "restricted"}}}
    )
    ready(installable)
    assert versions(installable) == dict.fromkeys(COMPONENTS, older_image.VERSION)
    use(installable)
    printed = helm("test", "tranche")
    assert "a GPU pod is admitted" in printed
    assert "mode: loop; Tranche is installed" in printed

    running = client(installable).get("pod", "slice", namespace=TEAM)
    with Admissions(installable, TEAM).running() as load:
        helm("upgrade", "tranche", CHART, "--reuse-values", f"--set=image.tag={build.version()}")
        ready(installable)
    assert versions(installable) == dict.fromkeys(COMPONENTS, build.version())
    assert load.failed == []
    assert load.admitted > 50
    has_lost_nothing(installable, running)

    helm("upgrade", "tranche", CHART, "--reuse-values", "--set=config.agent.slots=7")
    ready(installable)
    reported(installable, lambda cards: {card["slots"] for card in cards} == {7}, what="7 slots a card")

    helm("uninstall", "tranche", "--wait")
    leave_nothing(installable, before, left=LEFT)
    assert inventory(installable) - before == set()


def test_make_install_lab_installs_and_crds_are_kept_if_asked(installable: Layout, helm: Callable[..., str]) -> None:
    """`make install-lab` runs this function on this cluster: all processes are ready, and `helm test` passes.

    Of an installation that keeps the definitions, only these and the objects of them that exist survive.
    """
    before = inventory(installable)
    helm_installation.install(installable, "--set=crds.keep=true")
    ready(installable)
    (release,) = yaml.safe_load(helm("list", "--output=yaml"))
    assert (release["name"], release["status"]) == ("tranche", "deployed")
    helm("uninstall", "tranche", "--wait")
    # The Leadership is in the namespace that is deleted by hand.
    leave_nothing(installable, before, left=LEFT, kept=KEPT | {"Leadership"})
    kinds = {line.split()[0] for line in inventory(installable) - before}
    assert kinds == KEPT
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
        "images": [{"name": "tranche", "newTag": older_image.VERSION}],
    }
    file = tmp_path / "kustomization.yaml"
    file.write_text(yaml.safe_dump(overlay))
    kubectl.run(installable, "apply", "-f", str(ROOT / "manifests" / "base" / "crds"))
    kubectl.run(installable, "apply", "-k", str(tmp_path))
    ready(installable)
    use(installable)
    running = client(installable).get("pod", "slice", namespace=TEAM)

    overlay["images"] = [{"name": "tranche", "newTag": build.version()}]
    file.write_text(yaml.safe_dump(overlay))
    with Admissions(installable, TEAM).running() as load:
        kubectl.run(installable, "apply", "-k", str(tmp_path))
        ready(installable)
    assert load.failed == []
    assert load.admitted > 50
    assert versions(installable) == dict.fromkeys(COMPONENTS, build.version())
    has_lost_nothing(installable, running)

    kubectl.run(installable, "delete", "-k", str(tmp_path), KUBECTL_PATIENCE)
    leave_nothing(installable, before, left=frozenset())
    assert inventory(installable) - before == set()
