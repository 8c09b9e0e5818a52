import json
import subprocess
import sys
from http.server import BaseHTTPRequestHandler
from pathlib import Path
from urllib.parse import urlsplit

import msgspec
import pytest
import yaml

from allocation.allocation import Allocation, CardShare, ClaimMark
from allocation.names import CLAIM, HAMI_BIND_PHASE, ISOLATION, REQUIRED_PLUGINS
from allocation.wire import environment
from cli import env
from cli.__main__ import main
from cli.kube.objects import FieldReference, Pod, Variable, VariableSource
from cli.tables import render
from tests.cli.support.http_server import kubeconfig, serving

SHARES = (CardShare("GPU-a", 0, 3000, 300), CardShare("GPU-b", 1, 3000, 300))


def _pod(*, node: str = "n1", placed: bool = True) -> Pod:
    """Return a pod as admission leaves it, with one GPU container and one without a GPU."""
    variables = [
        {"name": name, "valueFrom": {"fieldRef": {"fieldPath": f"metadata.annotations['{key}']"}}}
        for name, key in environment.references("main", len(SHARES)).items()
    ]
    annotations = environment.annotations(Allocation(node, {"main": SHARES})) if placed else {}
    containers = [
        {"name": "main", "env": [{"name": "HOME", "value": "/root"}, *variables]},
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


def test_references_are_resolved() -> None:
    """Each variable has the value of the allocation."""
    shown = env.of_pod(_pod())
    assert [container.name for container in shown.containers] == ["prepare", "main", "side"]
    assert {item.name: item.value for item in shown.containers[1].variables} == environment.values(SHARES)
    assert shown.is_managed
    assert shown.is_resolved


def test_literal_values_are_shown() -> None:
    """A container without a GPU shows the value that hides all GPUs."""
    side = env.of_pod(_pod()).only("side").containers
    assert [(item.name, item.value, item.annotation) for item in side[0].variables] == [
        ("NVIDIA_VISIBLE_DEVICES", "void", "")
    ]


def test_the_variables_of_a_claim_count_the_cards_of_the_container() -> None:
    """The runtime shows a container its own cards only, so CUDA has them by position; the claim is named."""
    pod = _pod()
    shares = (CardShare("GPU-a", 5, 3000, 1000), CardShare("GPU-b", 7, 3000, 1000))
    allocation = Allocation("n1", {"main": shares}, ClaimMark("pair", "Exclusive"))
    pod.metadata.annotations = {CLAIM: "pair", **environment.annotations(allocation, visible_as="Index")}
    shown = env.of_pod(pod)
    assert {item.name: item.value for item in shown.containers[1].variables}["CUDA_VISIBLE_DEVICES"] == "0,1"
    assert (shown.claim, shown.only("main").claim, env.of_pod(_pod()).claim) == ("pair", "pair", "")


@pytest.mark.parametrize(
    ("annotations", "isolation", "words"),
    [
        ({}, "none", "nothing enforces the limits"),
        ({ISOLATION: "cuda"}, "cuda", "the driver enforces the memory"),
        ({ISOLATION: "mps"}, "mps", "the MPS daemon of the node"),
        ({ISOLATION: "hami-core"}, "hami-core", "in each process that loads it"),
        (
            {ISOLATION: "hami-core", REQUIRED_PLUGINS: environment.REQUIRED_PLUGINS},
            *("hami-core", "into which the node's agent loads it"),
        ),
        ({ISOLATION: "mig"}, "mig", "each MIG instance"),
        ({HAMI_BIND_PHASE: "success"}, "none", "HAMi's device plugin loads HAMi-core"),
        ({ISOLATION: "\x1b]0;owned\x07"}, "unknown", "not known to this version"),
    ],
)
def test_what_enforces_the_limits_is_said(annotations: dict[str, str], isolation: str, words: str) -> None:
    """By the isolation of the pod, or by the plugin of its node; in JSON as well."""
    pod = _pod()
    pod.metadata.annotations |= annotations
    shown = env.of_pod(pod)
    assert shown.isolation == isolation
    assert words in shown.enforcement
    assert json.loads(render(shown, shown.table(), output="json"))["enforcement"] == shown.enforcement


def test_variables_that_kai_gpu_fractioning_sets_are_shown() -> None:
    """They replace those of the pod's spec, in its containers with cards; another scheduler's pods are not managed."""
    pod = _pod()
    written = environment.annotations(Allocation("n1", {"main": SHARES}), "nvfractions")
    pod.metadata.annotations = {**written, **dict.fromkeys(environment.fraction_references("side").values(), "all")}
    shown = env.of_pod(pod)
    main = {each.name: (each.value, each.annotation) for each in shown.containers[1].variables}
    names = "runtime.nvidia.com/gpu=GPU-a,runtime.nvidia.com/gpu=GPU-b"
    assert main["NVIDIA_VISIBLE_DEVICES"] == (names, "nvidia.com/container.main.gpus.devices")
    assert main["NVIDIA_GPU_MEMORY_REQUEST"] == ("3000", "nvidia.com/container.main.gpu-memory.request")
    assert main["NVIDIA_GPU_MEMORY_LIMIT"] == ("3000", "nvidia.com/container.main.gpu-memory.limit")
    assert {each.annotation for each in shown.containers[2].variables} == {""}
    assert "kai-gpu-fractioning enforces the memory of each container" in shown.enforcement
    for container in pod.spec.containers:
        container.env = []
    assert not env.of_pod(pod).is_managed


def test_variables_of_the_fabric_are_shown() -> None:
    """Those that the claim asks for have the value of the Binding, and the user's own the value of the spec."""
    pod = _pod()
    key = environment.references("main", 0, fabric=("NCCL_IB_HCA",))["NCCL_IB_HCA"]
    pod.metadata.annotations[key] = "=mlx5_0,mlx5_1"
    reference = VariableSource(FieldReference(f"metadata.annotations['{key}']"))
    pod.spec.containers[0].env = [
        Variable("NCCL_IB_HCA", value_from=reference),
        Variable("NCCL_NET_GDR_LEVEL", "SYS"),
    ]
    (main,) = env.of_pod(pod).only("main").containers
    assert [(each.name, each.value, each.annotation) for each in main.variables] == [
        ("NCCL_IB_HCA", "=mlx5_0,mlx5_1", key),
        ("NCCL_NET_GDR_LEVEL", "SYS", ""),
    ]


def test_before_placement_references_are_empty() -> None:
    """A reference to a missing annotation has an empty value, as for the kubelet."""
    shown = env.of_pod(_pod(placed=False))
    assert {item.value for item in shown.containers[1].variables} == {""}
    assert shown.is_managed
    assert not shown.is_resolved


def test_the_later_of_two_entries_wins() -> None:
    """Of two entries with the same name the later one counts, as for the kubelet."""
    pod = _pod()
    pod.spec.containers[0].env += pod.spec.containers[1].env
    values = {item.name: item for item in env.of_pod(pod).containers[1].variables}
    assert values["NVIDIA_VISIBLE_DEVICES"].value == "void"
    assert values["NVIDIA_VISIBLE_DEVICES"].annotation == ""


def test_pod_without_variables_is_not_managed() -> None:
    """Only references to annotations make a pod a managed one."""
    assert not env.of_pod(msgspec.convert({"metadata": {"name": "p", "namespace": "team"}}, Pod)).is_managed


def test_table_has_a_row_for_each_variable() -> None:
    """A row has container, variable and value, in the wide table also the annotation; headers can be omitted."""
    shown = env.of_pod(_pod()).only("side")
    assert render(shown, shown.table(), output="table").splitlines() == [
        "CONTAINER    VARIABLE                VALUE",
        "side         NVIDIA_VISIBLE_DEVICES  void",
    ]
    assert render(shown, shown.table(), output="table", headers=False) == "side  NVIDIA_VISIBLE_DEVICES  void\n"
    wide = env.of_pod(_pod()).table(wide=True)
    assert wide.headers[-1] == "ANNOTATION"
    assert wide.rows[0][-1] == "nvidia-visible-devices.gpu.scheduling/main"


def test_the_pods_of_a_workload_are_shown_one_after_the_other(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """As with `explain`, a workload is named by kind and name; JSON has a list then, and for one pod has none."""
    pods = [msgspec.to_builtins(_pod()) for _ in range(2)]
    for number, each in enumerate(pods):
        each["metadata"]["name"] = f"web-{number}"
    bodies = {
        "/apis/apps/v1/namespaces/team/deployments/web": {"spec": {"selector": {"matchLabels": {"app": "web"}}}},
        "/api/v1/namespaces/team/pods": {"metadata": {}, "items": pods},
        "/api/v1/namespaces/team/pods/web-0": pods[0],
    }

    def respond(request: BaseHTTPRequestHandler) -> tuple[int, bytes]:
        return 200, json.dumps(bodies[urlsplit(request.path).path]).encode()

    with serving(respond) as url:
        options = ("--kubeconfig", kubeconfig(tmp_path, url, namespace="team"))
        assert main(["env", "deploy/web", "-c", "side", *options]) == 0
        rows = [line.split()[:2] for line in capsys.readouterr().out.splitlines()]
        assert rows == [["POD", "CONTAINER"], ["web-0", "side"], ["web-1", "side"]]
        assert main(["env", "deploy/web", "-o", "json", *options]) == 0
        assert [each["pod"] for each in json.loads(capsys.readouterr().out)["items"]] == ["web-0", "web-1"]
        assert main(["env", "pod/web-0", "-o", "json", *options]) == 0
        assert json.loads(capsys.readouterr().out)["pod"] == "web-0"


@pytest.mark.parametrize("output", ["wide", "json", "yaml"])
def test_control_characters_of_a_tenant_do_not_reach_the_terminal(tmp_path: Path, output: str) -> None:
    """They could hide lines, or type commands; JSON and YAML still have the value."""
    value = "\x1b]0;owned\x07\x9b2J\r\x7f"
    pod = msgspec.to_builtins(_pod())
    pod["spec"]["containers"][1]["env"][0]["value"] = value
    pod["metadata"]["annotations"][ISOLATION] = value
    with serving(lambda _: (200, json.dumps(pod).encode())) as url:
        command = [sys.executable, "-m", "cli", "env", "p", "-c", "side", "-o", output]
        command += ["--kubeconfig", kubeconfig(tmp_path, url, namespace="team")]
        done = subprocess.run(command, capture_output=True, timeout=60, check=True)
    printed = done.stdout.decode()
    notes = done.stderr.decode()
    assert notes == ("note: isolation unknown: not known to this version of kubectl gpu\n" if output == "wide" else "")
    assert [each for each in printed if not each.isprintable() and each != "\n"] == []
    assert r"\u001b]0;owned\u0007\u009b2J" in printed or output == "yaml"
    if output != "wide":
        read = json.loads if output == "json" else yaml.safe_load
        assert read(printed)["containers"][0]["variables"][0]["value"] == value


def test_json_and_yaml_have_the_same_content() -> None:
    """Both have namespace, pod, node, containers and variables."""
    shown = env.of_pod(_pod())
    data = json.loads(render(shown, shown.table(), output="json"))
    assert data == yaml.safe_load(render(shown, shown.table(), output="yaml"))
    assert (data["namespace"], data["pod"], data["node"]) == ("team", "p", "n1")
    assert data["containers"][1]["variables"][0] == {
        "name": "NVIDIA_VISIBLE_DEVICES",
        "value": "runtime.nvidia.com/gpu=GPU-a,runtime.nvidia.com/gpu=GPU-b",
        "annotation": "nvidia-visible-devices.gpu.scheduling/main",
    }


def test_what_is_reserved_and_what_may_be_used_are_shown() -> None:
    """The variables have the limits only; a pod without limits above its requests has no such sentence."""
    pod = _pod()
    assert env.of_pod(pod).limits == ()
    share = CardShare("GPU-a", 0, 3000, 300, cores_limit=600)
    pod.metadata.annotations.update(environment.annotations(Allocation("n1", {"main": (share,)})))
    assert env.of_pod(pod).limits == (
        "container main has 3000 MiB and 30 % of each card reserved, and may use up to 3000 MiB and 60 %",
    )
