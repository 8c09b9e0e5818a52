"""While the webhook is down the API server itself refuses pods that it would have changed; here it does not run."""

from __future__ import annotations

import copy
from typing import TYPE_CHECKING, Any

import pytest

from allocation.names import RESREQ
from benchmarks import cluster
from lab.client import client
from tests.policies.support.pods import IMAGE, plain, prepared
from tests.support.cases import case
from tests.support.refusals import refusal

if TYPE_CHECKING:
    from collections.abc import Callable

    from lab.layout import Layout
    from tests.policies.support.leader import Leader

pytestmark = pytest.mark.apiserver
DEBUG_POLICY = "may see none of them"
OUT = {"gpu.scheduling/injection": "disabled"}


def creation_refusal(server: Layout, sent: dict[str, Any], namespace: str) -> str:
    """Create a pod as a dry run; return why it is refused, empty if it is not."""
    return refusal(lambda: client(server).create(sent, namespace=namespace, dry_run=True))


# ---- pods made by hand -----------------------------------------------------------------------------------------------


def entry(spec: dict[str, Any], container: int, name: str) -> dict[str, Any]:
    """Return a variable of a container."""
    variable: dict[str, Any] = next(each for each in spec["containers"][container]["env"] if each["name"] == name)
    return variable


ALL = {"name": "NVIDIA_VISIBLE_DEVICES", "value": "all"}
SWITCH = {"name": "CUDA_DISABLE_CONTROL", "value": "true"}
MINE = {"name": "CUDA_VISIBLE_DEVICES", "value": "0"}
CHANGES: list[tuple[str, Callable[[dict[str, Any]], object]]] = [
    ("container c0 asks for a GPU", lambda spec: spec["containers"][0].pop("env")),
    ("container c0 asks for a GPU", lambda spec: spec["containers"][0]["env"].append(MINE)),
    (
        "container c0 asks for a GPU",
        lambda spec: entry(spec, 0, "NVIDIA_VISIBLE_DEVICES")["valueFrom"]["fieldRef"].update(
            fieldPath="metadata.annotations['mine']"
        ),
    ),
    ("container c1 asks for no GPU in a pod with one", lambda spec: spec["containers"][1].pop("env")),
    ("container c1 asks for no GPU in a pod with one", lambda spec: spec["containers"][1]["env"].append(ALL)),
    ("container c1 asks for no GPU in a pod with one", lambda spec: spec["containers"][1]["env"].append(MINE)),
    ("container c0 sets CUDA_DISABLE_CONTROL", lambda spec: spec["containers"][0]["env"].append(SWITCH)),
    ("container c1 sets CUDA_DISABLE_CONTROL", lambda spec: spec["containers"][1]["env"].append(SWITCH)),
    ("container c1 is privileged", lambda spec: spec["containers"][1].update(securityContext={"privileged": True})),
    (
        "container c1 is privileged",
        lambda spec: spec["containers"][1].update(securityContext={"capabilities": {"add": ["SYS_ADMIN"]}}),
    ),
    ("pod has node assigned", lambda spec: spec.update(nodeName="n1")),
]


def test_handmade_gpu_pods_are_guarded_without_the_webhook(server: Layout, namespace: str) -> None:
    """The API server rejects every kind of handmade GPU pod, and admits one that is just as the webhook makes it."""
    made = prepared(containers=2)
    del made["spec"]["schedulingGates"]  # a pod with gates may have no node
    assert creation_refusal(server, made, namespace) == ""
    for number, (why, change) in enumerate(CHANGES):
        sent = copy.deepcopy(made)
        change(sent["spec"])
        with case(number=number):
            assert why in creation_refusal(server, sent, namespace)


@pytest.mark.parametrize("path", ["/var/run/nvidia-container-devices/all", "/var/run//./nvidia-container-devices/0"])
@pytest.mark.parametrize("make", [lambda: plain("p"), prepared], ids=["plain", "gpu"])
def test_device_request_by_volume_mount_is_rejected(
    server: Layout, namespace: str, path: str, make: Callable[[], dict[str, Any]]
) -> None:
    """This other way to request cards from NVIDIA's runtime is rejected, whether or not the pod requests a GPU."""
    sent = make()
    sent["spec"]["volumes"] = [{"name": "null", "hostPath": {"path": "/dev/null"}}]
    sent["spec"]["containers"][0]["volumeMounts"] = [{"name": "null", "mountPath": path}]
    why = creation_refusal(server, sent, namespace)
    assert "mounts a volume below /var/run/nvidia-container-devices" in why


# ---- debug containers ------------------------------------------------------------------------------------------------


def debugger(name: str = "debugger", *, privileged: bool = False, **env: str) -> dict[str, Any]:
    """Return a container as `kubectl debug` adds it."""
    context = {"privileged": True} if privileged else {"capabilities": {"add": ["SYS_PTRACE"]}}
    entries = [{"name": key, "value": value} for key, value in env.items()]
    return {"name": name, "image": IMAGE, "env": entries, "securityContext": context}


VOID = {"NVIDIA_VISIBLE_DEVICES": "void"}
DEBUGGERS = [
    (debugger(), DEBUG_POLICY),
    (debugger(), "kubectl debug --env NVIDIA_VISIBLE_DEVICES=void"),
    (debugger(**VOID, CUDA_VISIBLE_DEVICES="0"), DEBUG_POLICY),
    (debugger(**VOID, CUDA_MPS_PIPE_DIRECTORY="/x"), "weakens their limits"),
    (debugger(**VOID, privileged=True), "is privileged"),
]


def test_debug_container_is_guarded_without_the_webhook(
    server: Layout, leader: Leader, node: str, namespace: str
) -> None:
    """The API server rejects a debug container that could see cards, and the error says how to add a blind one."""
    leader.place(namespace, prepared())
    client(server).create(plain("ordinary"), namespace=namespace)

    def addition_refusal(name: str, container: dict[str, Any]) -> str:
        patch = {"spec": {"ephemeralContainers": [container]}}
        subresource = "ephemeralcontainers"
        return refusal(
            lambda: client(server).patch(
                "pods", name, patch, namespace=namespace, subresource=subresource, by="strategic"
            )
        )

    for container, why in DEBUGGERS:
        with case(container=container):
            assert why in addition_refusal("p", container)
    assert addition_refusal("p", debugger(**VOID)) == ""
    assert addition_refusal("p", debugger("second", **VOID)) == ""
    assert addition_refusal("ordinary", debugger()) == ""


# ---- requirements in one line ----------------------------------------------------------------------------------------


def requiring(text: str) -> dict[str, Any]:
    """Return a pod that requires resources in one line."""
    return plain("requires", scheduler="default-scheduler", annotations={RESREQ: text})


UNREADABLE = ("gpu=-1", "gpu", "gpus=1", "cpu=1,", "cpu=1=2", "cpu=x", "mem=1z", "cpu=", "cpu=1.5")


def test_requirement_is_guarded_without_the_webhook(server: Layout, namespace: str, plain_namespace: str) -> None:
    """The pod would start without the GPUs that it requires, so the API server refuses it, and says what to do."""
    for text in ("gpu=1", "cpu=1, GPU = 010", "mem=1.5GiB,gpu=2"):
        words = creation_refusal(server, requiring(text), namespace)
        assert f"{RESREQ} asks for a GPU, but the admission webhook tranche-webhook did not turn it" in words
        assert "create the pod again once the webhook is ready" in words
    for text in UNREADABLE:
        with case(text=text):
            assert f'"{text}": write cpu=N,mem=SIZE,gpu=N' in creation_refusal(server, requiring(text), namespace)
    assert creation_refusal(server, requiring("cpu=1,mem=16g,gpu=0"), namespace) == ""
    assert creation_refusal(server, cluster.prepared(requiring("cpu=1,gpu=1")), namespace) == ""


@pytest.mark.parametrize("text", ["gpu=1", "gpus=1"])
def test_requirement_of_others_is_not_guarded(server: Layout, namespace: str, plain_namespace: str, text: str) -> None:
    """A pod of another scheduler, one that opted out, and one of a namespace that did not opt in may say anything."""
    other = requiring(text)
    other["spec"]["schedulerName"] = "batch"
    opted_out = requiring(text)
    opted_out["metadata"]["labels"] = OUT
    for sent, where in ((other, namespace), (opted_out, namespace), (requiring(text), plain_namespace)):
        assert creation_refusal(server, sent, where) == ""
