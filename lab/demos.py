"""The demos: each does one thing as a user would, and fails if the cluster does not show the expected result."""

from __future__ import annotations

import os
import subprocess
import sys
from typing import TYPE_CHECKING, Any

from allocation import variables
from allocation.names import ALLOCATION, HAMI_ALLOCATED, SYSTEM_NAMESPACE
from allocation.wire import environment, hami, record
from lab import fleet, kubeconfig, kubectl, manifests, wait
from lab.client import client
from lab.errors import LabError

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from allocation.allocation import Allocation
    from lab.layout import Layout

NAMESPACE = "demo"


def opt_in(layout: Layout) -> Iterator[str]:
    """Label the demo's namespace."""
    labels = {"gpu.scheduling/injection": "enabled"}
    api = client(layout)
    api.until_deleted(NAMESPACE)
    api.apply({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": NAMESPACE, "labels": labels}})
    api.until(
        lambda accounts: "default" in accounts,
        "serviceaccounts",
        namespace=NAMESPACE,
        what=f"ServiceAccount default in namespace {NAMESPACE}",
    )
    yield f"namespace {NAMESPACE} has label gpu.scheduling/injection=enabled"


def fractional(layout: Layout) -> Iterator[str]:
    """Place a pod that requests 3000 MiB and 30 % of one card and names no scheduler."""
    _create(layout, manifests.demo("fractional"))
    pod = _placed(layout, "fractional")
    (share,) = _allocation(pod).containers["main"]
    _expect((share.memory_mib, share.cores) == (3000, 300), "fractional", pod["metadata"]["annotations"][ALLOCATION])
    ((device,),) = hami.decode_devices(pod["metadata"]["annotations"][HAMI_ALLOCATED])
    _expect(device == (share.uuid, 3000, 30), "fractional", pod["metadata"]["annotations"][HAMI_ALLOCATED])
    yield _event(layout, pod, "FilteringSucceed", holding=f"find fit node({pod['spec']['nodeName']})")
    yield f"{HAMI_ALLOCATED}: {pod['metadata']['annotations'][HAMI_ALLOCATED]}"


def pending(layout: Layout) -> Iterator[str]:
    """Show a pod that fits on no card: it stays Pending without an allocation, and an event has the reason."""
    _create(layout, manifests.demo("overrequest"))
    yield _event(layout, _get(layout, "overrequest"), "FilteringFailed", holding="8/8 CardInsufficientMemory")
    pod = _get(layout, "overrequest")
    _expect(pod["status"]["phase"] == "Pending" and "nodeName" not in pod["spec"], "overrequest", "it was placed")
    _expect(ALLOCATION not in pod["metadata"].get("annotations", {}), "overrequest", "it has an allocation")
    yield "overrequest is Pending, without an allocation"


def placement(layout: Layout) -> Iterator[str]:
    """Place three replicas, and show the decision for each with the chosen node and its score."""
    _create(layout, manifests.demo("placement"))
    for name in wait.until(lambda: _replicas(layout, 3), what="3 placed pods of placement"):
        pod = _get(layout, name)
        yield _event(layout, pod, "FilteringSucceed", holding=f"find fit node({pod['spec']['nodeName']})")


def claim(layout: Layout) -> Iterator[str]:
    """Give a pod two whole cards by a GpuClaim, whose status shows them."""
    gpu_claim, manifest = manifests.demo("claim")["items"]
    _remove(layout, manifest)
    _create(layout, gpu_claim)
    _apply(layout, manifest)
    pod = _placed(layout, "claim")
    annotations = pod["metadata"]["annotations"]
    indexes = [share.index for share in _allocation(pod).containers["main"]]
    visible = annotations[environment.references("main", len(indexes))["CUDA_VISIBLE_DEVICES"]]
    _expect((len(indexes), visible) == (2, "0,1"), "claim", f"{annotations[ALLOCATION]}, visible as {visible}")
    allocated = f"{pod['spec']['nodeName']}:{','.join(map(str, indexes))}"

    def bound() -> bool:
        status = client(layout).get("gpuclaim", "two-cards", namespace=NAMESPACE).get("status", {})
        return (status.get("phase"), status.get("allocated")) == ("Bound", allocated)

    wait.until(bound, what=f"status Bound, {allocated}, of GpuClaim {NAMESPACE}/two-cards")
    yield f"GpuClaim two-cards is Bound: {allocated}"
    yield f"main: CUDA_VISIBLE_DEVICES={visible}"


def static(layout: Layout) -> Iterator[str]:
    """Create a pod that brings its allocation: accepted from a trusted identity, rejected from any other."""
    node = _best_node(layout)
    uuid = fleet.card(node, fleet.CARDS_PER_NODE - 1)
    manifest = manifests.demo("static")
    text = manifest["metadata"]["annotations"][ALLOCATION].replace("NODE", node).replace("UUID", uuid)
    manifest["metadata"]["annotations"][ALLOCATION] = text
    _remove(layout, manifest)
    try:
        _apply(layout, manifest)
    except LabError as refusal:
        yield f"created by the administrator: {refusal.why.splitlines()[-1]}"
    else:
        _expect(False, "static", "an untrusted identity could create a pod with an allocation")  # noqa: FBT003 -- a failed assertion
    trusted = kubeconfig.service_account_kubeconfig(layout, namespace=SYSTEM_NAMESPACE, name="tranche-static")
    _apply(layout, manifest, identity=trusted)
    pod = _placed(layout, "static")
    _expect(pod["spec"]["nodeName"] == node and _allocation(pod) == record.decode(text), "static", text)
    limits = pod["spec"]["containers"][0]["resources"]["limits"]
    _expect(limits.get("nvidia.com/gpucores") == "25", "static", f"limits {limits}")
    yield f"created by {trusted.name}: placed on {node}, limits {limits}"


def containers(layout: Layout) -> Iterator[str]:
    """Compare the environment of each container with the pod's allocation, on the real node in the container itself."""
    node = _best_node(layout)
    manifest = manifests.demo("environment")
    manifest["spec"]["nodeSelector"] = {"kubernetes.io/hostname": node}
    _create(layout, manifest)
    pod = _placed(layout, "environment")
    allocation = _allocation(pod)
    is_real = node == layout.node_name
    if is_real:
        kubectl.run(
            layout, "-n", NAMESPACE, "wait", "--for=condition=Ready", f"--timeout={wait.READY_S:g}s", "pod/environment"
        )
    printed = _cli(layout, "env", "environment", "-n", NAMESPACE)
    for container, shares in allocation.containers.items():
        expected = environment.values(shares)
        if is_real:
            seen = _gpu_variables(_output(layout, container))
            _expect(seen == expected, f"environment of container {container}", f"{seen} instead of {expected}")
        missing = [value for value in expected.values() if value not in printed]
        _expect(not missing, f"`kubectl gpu env` of container {container}", f"{missing} missing")
        yield f"{container}: CUDA_VISIBLE_DEVICES={expected['CUDA_VISIBLE_DEVICES']}"
    if is_real:
        seen = _gpu_variables(_output(layout, "log"))
        _expect(seen == {environment.NVIDIA_VISIBLE_DEVICES: environment.NO_DEVICES}, "container log", f"{seen}")
        yield "log: NVIDIA_VISIBLE_DEVICES=void, although its image sets all"
        yield "read with `kubectl exec` from the running containers"
    else:
        yield "computed as a kubelet would resolve it: no node of this lab runs pods"


def cards(layout: Layout) -> Iterator[str]:
    """Print the table of cards and the pods that use them."""
    yield from _cli(layout, "top", "--cards").splitlines()


def clean(layout: Layout) -> Iterator[str]:
    """Delete the demo namespace and wait until its pods are gone."""
    client(layout).delete("namespace", NAMESPACE, missing_ok=True)
    left = client(layout).list("pods", labels="demo")
    _expect(not left, "demo", f"{len(left)} pods are left")
    yield "no demo pods are left"


# ---- helpers -------------------------------------------------------------------------------------------------------


def _create(layout: Layout, manifest: dict[str, Any]) -> None:
    """Create a demo object, replacing one from an earlier run."""
    _remove(layout, manifest)
    _apply(layout, manifest)


def _remove(layout: Layout, manifest: dict[str, Any]) -> None:
    kind, name = manifest["kind"].lower(), manifest["metadata"]["name"]
    client(layout).delete(kind, name, namespace=NAMESPACE, propagation="Foreground", missing_ok=True)


def _apply(layout: Layout, manifest: dict[str, Any], *, identity: Path | None = None) -> None:
    client(layout, kubeconfig=identity).create(manifest, namespace=NAMESPACE)


def _get(layout: Layout, name: str) -> dict[str, Any]:
    return client(layout).get("pod", name, namespace=NAMESPACE)


def _placed(layout: Layout, name: str) -> dict[str, Any]:
    """Wait until a pod has a node, and return the pod."""

    def placed() -> dict[str, Any] | None:
        pod = _get(layout, name)
        return pod if pod["spec"].get("nodeName") else None

    return wait.until(placed, what=f"a node for pod {NAMESPACE}/{name}")


def _replicas(layout: Layout, count: int) -> list[str] | None:
    pods = client(layout).list("pods", namespace=NAMESPACE, labels="demo=placement")
    placed = [
        pod["metadata"]["name"]
        for pod in pods
        if pod["spec"].get("nodeName") and not pod["metadata"].get("deletionTimestamp")
    ]
    return placed if len(placed) == count else None


def _event(layout: Layout, pod: dict[str, Any], reason: str, *, holding: str) -> str:
    """Wait for an event about a pod, and return it as a line."""

    def message() -> str | None:
        selector = f"involvedObject.uid={pod['metadata']['uid']},reason={reason}"
        events = client(layout).list("events", namespace=NAMESPACE, fields=selector)
        return next((event["message"] for event in events if holding in event["message"]), None)

    name = pod["metadata"]["name"]
    text = wait.until(message, what=f"event {reason} about {name} that says {holding!r}")
    return f"{name}: {reason}: {text}"


def _allocation(pod: dict[str, Any]) -> Allocation:
    return record.decode(pod["metadata"]["annotations"][ALLOCATION])


def _best_node(layout: Layout) -> str:
    """Return the real node, or a simulated one if the lab has no real node."""
    return layout.node_name if layout.node_name in fleet.nodes(layout) else fleet.SIMULATED_NODES[1]


def _output(layout: Layout, container: str) -> str:
    """Return the environment of a container, from inside a running one, or from the log of an init container."""
    pod = ("-n", NAMESPACE, "environment", "-c", container)
    if container == "prepare":
        return kubectl.run(layout, "logs", *pod)
    return kubectl.run(layout, "exec", *pod, "--", "env")


def _gpu_variables(output: str) -> dict[str, str]:
    pairs = (line.partition("=") for line in output.splitlines())
    return {name: value for name, _, value in pairs if variables.is_owned(name)}


def _cli(layout: Layout, *arguments: str) -> str:
    """Return the output of `kubectl gpu <arguments>`."""
    command = [sys.executable, "-m", "cli", *arguments]
    done = subprocess.run(
        command,
        capture_output=True,
        text=True,
        check=False,
        timeout=wait.READY_S,
        env={**os.environ, "KUBECONFIG": str(layout.kubeconfig)},
    )
    if done.returncode:
        raise LabError(f"kubectl gpu {' '.join(arguments)}", why=done.stderr.strip(), remedy="see the message")
    return done.stdout


def _expect(holds: bool, what: str, found: str) -> None:  # noqa: FBT001 -- an assertion
    if not holds:
        raise LabError(
            what, why=f"unexpected result: {found}", remedy="read the logs of scheduler and webhook in .lab/logs"
        )
