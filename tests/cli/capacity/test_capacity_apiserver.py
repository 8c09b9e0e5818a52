"""`kubectl gpu capacity` on a real API server, with the rights of a viewer."""

import json
from collections.abc import Iterator
from pathlib import Path

import pytest
import yaml

from lab import kubectl
from lab.layout import Layout
from tests.cli.conftest import NODE, TEAM, Gpu

pytestmark = pytest.mark.apiserver


@pytest.fixture(scope="module", autouse=True)
def room(team: Layout) -> Iterator[None]:
    """The node with cards has room for ten pods; its only healthy card is used by one pod: 3000 MiB and 30 %."""
    kubectl.run(team, "label", "namespace", TEAM, "gpu.scheduling/injection=enabled", "--overwrite")
    _allow(team, {"pods": "10"})
    yield
    _allow(team, None)
    kubectl.run(team, "label", "namespace", TEAM, "gpu.scheduling/injection-")


def _allow(team: Layout, allocatable: dict[str, str] | None) -> None:
    patch = json.dumps({"status": {"allocatable": allocatable, "capacity": allocatable}})
    kubectl.run(team, "patch", "node", NODE, "--subresource=status", "--type=merge", "-p", patch)


def test_a_viewer_counts_pods_and_what_more_nodes_would_take(gpu: Gpu, tmp_path: Path) -> None:
    """37,960 MiB are left, and no agent reports anything else that fits; a new node has the whole card."""
    limits = {"nvidia.com/gpu": 1, "nvidia.com/gpumem": 9000}
    container = {"name": "main", "image": "none", "resources": {"limits": limits}}
    pod = {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "train"}, "spec": {"containers": [container]}}
    file = tmp_path / "train.yaml"
    file.write_text(yaml.safe_dump(pod))
    done = gpu("capacity", "-f", str(file), "--with-node", f"{NODE}=2", "-o", "json")
    assert done.returncode == 0, done.stderr
    content = json.loads(done.stdout)
    (now,), (then,) = content["now"]["shapes"], content["withNodes"]["shapes"]
    assert (now["name"], now["count"], now["nodes"]) == ("Pod train", 4, [{"name": NODE, "count": 4}])
    assert then["count"] == 4 + 2 * 8  # on a copy both cards are healthy
    assert content["added"] == {"template": NODE, "count": 2}


def test_without_a_pod_whole_cards_and_the_slices_of_pods_are_counted(gpu: Gpu) -> None:
    """With the largest slice: what the card has left."""
    done = gpu("capacity")
    assert done.returncode == 0, done.stderr
    assert "whole card" in done.stdout
    assert "3000 MiB, 30 %" in done.stdout
    assert f"largest slice: 37960 MiB and 70 % of the compute on node {NODE}" in done.stdout


def test_a_viewer_simulates_with_a_node_that_could_be_added(gpu: Gpu, tmp_path: Path) -> None:
    """A pod that needs a whole card fits only on the copy of the node."""
    limits = {"nvidia.com/gpu": 1, "nvidia.com/gpumem-percentage": 100}
    container = {"name": "main", "image": "none", "resources": {"limits": limits}}
    pod = {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "whole"}, "spec": {"containers": [container]}}
    file = tmp_path / "whole.yaml"
    file.write_text(yaml.safe_dump(pod))
    assert "waits: " in gpu("simulate", "-f", str(file)).stdout
    assert f"would go to {NODE}-copy-1" in gpu("simulate", "-f", str(file), "--with-node", NODE).stdout
    refused = gpu("simulate", "-f", str(file), "--with-node", "n9")
    assert "node n9 does not exist" in refused.stderr
