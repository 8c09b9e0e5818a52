import json

import msgspec
import yaml

from allocation import environment as rules
from allocation.allocation import Allocation, CardShare
from cli import environment
from cli.objects import Pod
from cli.tables import render

SHARES = (CardShare("GPU-a", 0, 3000, 300), CardShare("GPU-b", 1, 3000, 300))


def _pod(*, node: str = "n1", placed: bool = True) -> Pod:
    """Answer a pod as admission leaves it: one GPU container, and one that has no GPU."""
    env = [
        {"name": name, "valueFrom": {"fieldRef": {"fieldPath": f"metadata.annotations['{key}']"}}}
        for name, key in rules.references("main", len(SHARES)).items()
    ]
    annotations = rules.annotations(Allocation(node, {"main": SHARES})) if placed else {}
    containers = [
        {"name": "main", "env": [{"name": "HOME", "value": "/root"}, *env]},
        {"name": "side", "env": [{"name": "NVIDIA_VISIBLE_DEVICES", "value": "void"}]},
    ]
    return msgspec.convert(
        {
            "metadata": {"name": "p", "namespace": "team", "annotations": annotations},
            "spec": {
                "nodeName": node if placed else "",
                "initContainers": [{"name": "prepare"}],
                "containers": containers,
            },
        },
        Pod,
    )


def test_variables_are_what_the_container_gets() -> None:
    """Every reference shows the value that the allocation gives it, under the name that the process sees."""
    known = environment.of_pod(_pod())
    assert [container.name for container in known.containers] == ["prepare", "main", "side"]
    assert {item.name: item.value for item in known.containers[1].variables} == rules.values(SHARES)
    assert known.refers
    assert known.resolved


def test_values_that_stand_in_the_pod_are_shown_too() -> None:
    """A container that is denied every GPU shows so."""
    side = environment.of_pod(_pod()).only("side").containers
    assert [(item.name, item.value, item.annotation) for item in side[0].variables] == [
        ("NVIDIA_VISIBLE_DEVICES", "void", "")
    ]


def test_before_placement_references_are_empty() -> None:
    """A reference to an annotation that does not exist yet is an empty value, as for the kubelet."""
    known = environment.of_pod(_pod(placed=False))
    assert {item.value for item in known.containers[1].variables} == {""}
    assert known.refers
    assert not known.resolved


def test_the_later_of_two_entries_wins() -> None:
    """The kubelet takes the last entry of a name; so does the answer."""
    pod = _pod()
    pod.spec.containers[0].env += pod.spec.containers[1].env
    values = {item.name: item for item in environment.of_pod(pod).containers[1].variables}
    assert values["NVIDIA_VISIBLE_DEVICES"].value == "void"
    assert values["NVIDIA_VISIBLE_DEVICES"].annotation == ""


def test_a_pod_without_variables_refers_to_nothing() -> None:
    """An ordinary pod is told apart from a managed one."""
    assert not environment.of_pod(msgspec.convert({"metadata": {"name": "p", "namespace": "team"}}, Pod)).refers


def test_table_has_a_line_for_each_variable() -> None:
    """The table shows container, variable and value; the wide one the annotation, and headers can be left out."""
    known = environment.of_pod(_pod()).only("side")
    assert render(known, known.table(), output="table").splitlines() == [
        "CONTAINER    VARIABLE                VALUE",
        "side         NVIDIA_VISIBLE_DEVICES  void",
    ]
    assert render(known, known.table(), output="table", headers=False) == "side  NVIDIA_VISIBLE_DEVICES  void\n"
    wide = environment.of_pod(_pod()).table(wide=True)
    assert wide.headers[-1] == "ANNOTATION"
    assert wide.rows[0][-1] == "nvidia-visible-devices.gpu.scheduling/main"


def test_json_and_yaml_say_the_same() -> None:
    """The structured forms are one structure: namespace, pod, node, containers and their variables."""
    known = environment.of_pod(_pod())
    data = json.loads(render(known, known.table(), output="json"))
    assert data == yaml.safe_load(render(known, known.table(), output="yaml"))
    assert (data["namespace"], data["pod"], data["node"]) == ("team", "p", "n1")
    assert data["containers"][1]["variables"][0] == {
        "name": "NVIDIA_VISIBLE_DEVICES",
        "value": "GPU-a,GPU-b",
        "annotation": "nvidia-visible-devices.gpu.scheduling/main",
    }
