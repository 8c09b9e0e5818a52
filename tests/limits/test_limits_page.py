"""The commands, manifests and outputs of docs/limits.md agree with the code."""

import json
import re
from pathlib import Path
from typing import Any

import msgspec
import pytest
import yaml

from allocation.allocation import Allocation, CardShare
from allocation.delivery import Delivery
from allocation.isolation import Isolation
from allocation.names import ISOLATION
from allocation.wire import environment
from benchmarks import cluster
from cli import env
from cli.kube.objects import Pod
from cli.tables import render

ROOT = Path(__file__).parents[2]
PAGE = (ROOT / "docs" / "limits.md").read_text(encoding="utf-8")
SECTIONS = dict(zip(("cuda", "mps", "hami-core", "mig"), re.split(r"^## ", PAGE, flags=re.MULTILINE)[1:], strict=True))
SLICE = CardShare("GPU-8dcd427f", 0, 3000, 300)
INSTANCE = CardShare("MIG-2f3b8c1e", 0, 4864, 142, "GPU-8dcd427f")
COMMANDS = re.findall(r"^\$ (.*)$", PAGE, re.MULTILINE)


def manifests(section: str) -> list[dict[str, Any]]:
    """Return the manifests of a section."""
    return [yaml.safe_load(block) for block in re.findall(r"```yaml\n(.*?)```", section, re.DOTALL)]


def sent(manifest: dict[str, Any], isolation: str) -> dict[str, Any]:
    """Return a pod of the page as the API server sends it, with the isolation of its namespace."""
    text: dict[str, Any] = json.loads(json.dumps(manifest))
    text["metadata"]["annotations"] = {ISOLATION: isolation}
    (container,) = text["spec"]["containers"]
    limits = {name: str(amount) for name, amount in container["resources"]["limits"].items()}
    container["resources"] = {"limits": limits, "requests": limits}
    return text


@pytest.mark.parametrize("isolation", SECTIONS)
def test_the_shown_environment_is_that_of_the_shown_pod(isolation: str) -> None:
    """Admission accepts the pod as it is written, and `kubectl gpu env` prints these lines once it has its card."""
    section = SECTIONS[isolation]
    (manifest,) = manifests(section) or manifests(SECTIONS["cuda"])
    pod = cluster.prepared(sent(manifest, isolation))
    allocation = Allocation("gpu-1", {"main": (INSTANCE if isolation == "mig" else SLICE,)})
    delivery: Delivery = "nri" if isolation != "cuda" and "delivery.nri=true" in section else "cdi"
    pod["metadata"]["annotations"] |= environment.annotations(allocation, delivery, isolation=Isolation(isolation))
    shown = env.of_pod(msgspec.convert(pod, Pod))
    printed = render(shown, shown.table(), output="table").splitlines()
    printed.append(f"note: isolation {shown.isolation}: {shown.enforcement}")
    (block,) = re.findall(r"\$ kubectl gpu env slice -n team-a\n(.*?)```", section, re.DOTALL)
    assert printed == block.splitlines()


@pytest.mark.parametrize("isolation", SECTIONS)
def test_the_shown_label_chooses_the_isolation_of_the_section(isolation: str) -> None:
    """By the key and the word that admission reads."""
    labels = re.findall(r"\$ kubectl label namespace \S+ (\S+)=(\S+)", SECTIONS[isolation])
    assert labels == [(ISOLATION, isolation)]


def test_the_shown_label_chooses_the_nodes_of_the_daemon() -> None:
    """By its DaemonSet."""
    ((key, value),) = re.findall(r"\$ kubectl label node \S+ (\S+)=(\S+)", PAGE)
    daemon = yaml.safe_load((ROOT / "manifests" / "mps" / "daemon.yaml").read_text(encoding="utf-8"))
    assert daemon["spec"]["template"]["spec"]["nodeSelector"] == {key: value}


def test_the_shown_values_are_values_of_the_chart() -> None:
    """Each `--set` names a value that the schema of the chart knows."""
    schema = json.loads((ROOT / "charts" / "tranche" / "values.schema.json").read_text(encoding="utf-8"))
    paths = {path for command in COMMANDS for path in re.findall(r"(?:--set '?|,)([a-z]\w*\.[\w.]+)=", command)}
    assert {"delivery.hostFacts", "delivery.nri", "isolation.hamiCore", "config.webhook.allowed_isolations"} <= paths
    for path in paths:
        found = schema
        for step in path.split("."):
            while "$ref" in found:
                found = schema["$defs"][found["$ref"].rpartition("/")[2]]
            assert step in found["properties"], path
            found = found["properties"][step]


def test_the_shown_field_is_one_of_the_report() -> None:
    """The reasons of a node are in this field."""
    text = (ROOT / "manifests" / "base" / "crds" / "gpunodestatuses.yaml").read_text(encoding="utf-8")
    (field,) = {name for command in COMMANDS for name in re.findall(r"\{\.status\.(\w+)\}", command)}
    assert f"{field}:" in text


def test_every_command_is_of_a_known_program() -> None:
    """A command that this test does not know would be held to nothing."""
    known = ("helm upgrade tranche ", "kubectl get gpunodestatus", "kubectl label n", "kubectl gpu env ")
    assert [command for command in COMMANDS if not command.startswith(known)] == []
