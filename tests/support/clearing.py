"""A control plane is made empty again, so that one serves many modules, each of which finds nothing of the others."""

from __future__ import annotations

import contextlib
import logging
import shutil
import time
from typing import TYPE_CHECKING, Any, Final

from lab import cluster, control_plane, kubectl, processes
from lab.client import client
from lab.connection import RefusedError
from lab.errors import LabError
from tests.support.patience import PATIENCE_S

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from lab.client import Client
    from lab.layout import Layout

log = logging.getLogger(__name__)
_INTERVAL_S: Final = 0.2
_PROCESSES: Final = frozenset({"etcd", "kube-apiserver", "kube-controller-manager"})
_GUARDS: Final = (
    "validatingadmissionpolicybindings",
    "validatingadmissionpolicies",
    "mutatingwebhookconfigurations",
    "validatingwebhookconfigurations",
)
"""What may refuse the deletion of other objects; Kubernetes itself has none of them."""
_OF_THE_SERVER: Final = frozenset(
    {
        "apiservices.apiregistration.k8s.io",
        "flowschemas.flowcontrol.apiserver.k8s.io",
        "prioritylevelconfigurations.flowcontrol.apiserver.k8s.io",
        "ipaddresses.networking.k8s.io",
        "servicecidrs.networking.k8s.io",
        "events",
        "events.events.k8s.io",
    }
)
"""Kinds whose objects the control plane keeps itself; controllers write events meanwhile, so these go at the end."""
_LABELS: Final = ("kubernetes.io/bootstrapping", "apiserver.kubernetes.io/identity")
"""The labels of the roles that Kubernetes begins with, and of the Lease of the API server."""
_NAME: Final = "kubernetes.io/metadata.name"
_NAMESPACES: Final = frozenset({"default", "kube-node-lease", "kube-public", "kube-system"})
_KEPT: Final = frozenset(
    {
        "configmaps extension-apiserver-authentication",
        "configmaps kube-apiserver-legacy-service-account-token-tracking",
        "configmaps kube-root-ca.crt",
        "serviceaccounts default",
        "services kubernetes",
        "endpoints kubernetes",
        "endpointslices.discovery.k8s.io kubernetes",
        "priorityclasses.scheduling.k8s.io system-cluster-critical",
        "priorityclasses.scheduling.k8s.io system-node-critical",
        *(f"namespaces {name}" for name in _NAMESPACES),
    }
)


@contextlib.contextmanager
def serving(layout: Layout) -> Iterator[None]:
    """Keep a control plane without a scheduler during the block, and clear it afterwards.

    If that fails, the next block begins with a new one.
    """
    _start(layout)
    yield
    try:
        clear(layout)
    except BaseException as error:
        log.warning("the next module gets a new control plane: %s", error)
        cluster.down(layout)
        if not isinstance(error, LabError):
            raise


def _start(layout: Layout) -> None:
    """Start what does not run."""
    control_plane.up(layout, kube_scheduler=False)


def clear(layout: Layout) -> None:
    """Stop all processes but the control plane's, and remove their files and all objects but those of Kubernetes.

    Raises:
        LabError: something could not be stopped or removed.
    """
    processes.stop_all(layout, but=_PROCESSES)
    _remove_files(layout)
    _start(layout)  # a module may have ended a part of it; its configuration is written again
    api = client(layout)
    for kind in _GUARDS:
        api.delete_all(kind)
    kinds = kubectl.run(layout, "api-resources", "--verbs=list,delete", "-o", "name").split()
    left = wanted = [kind for kind in kinds if kind not in _OF_THE_SERVER]
    deadline = time.monotonic() + PATIENCE_S
    while left:
        while left := [kind for kind in left if _remove(api, kind)]:
            if time.monotonic() >= deadline:
                names = [f"{kind} {each['name']}" for kind in left for each in _foreign(api, kind)]
                raise LabError("an empty cluster", why=f"still there: {', '.join(names)}", remedy="read its logs")
            time.sleep(_INTERVAL_S)
        # What went last may have created others before.
        left = [kind for kind in wanted if _remove(api, kind)]
    api.delete_all("events", namespace="default", wait=False)
    for each in api.list("namespaces"):
        if opted := {label: None for label in each["metadata"]["labels"] if label != _NAME}:
            api.patch("namespace", each["metadata"]["name"], {"metadata": {"labels": opted}})


def _remove_files(layout: Layout) -> None:
    """Remove what modules wrote into the lab's folder, except for logs."""
    configured = (layout.config, layout.component_kubeconfigs)
    kept = {*configured, layout.bin, layout.etcd_data, layout.logs, layout.pki, layout.run, layout.kubeconfig}
    for each in layout.root.iterdir():
        if each not in kept:
            shutil.rmtree(each) if each.is_dir() else each.unlink()
    for folder in configured:
        for each in folder.iterdir():
            if each.is_file():
                each.unlink()


def _remove(api: Client, kind: str) -> bool:
    """Delete the objects of a kind that Kubernetes does not begin with; return whether there were any."""
    found = list(_foreign(api, kind))
    for each in found:
        name, namespace = each["name"], each.get("namespace", "")
        with contextlib.suppress(RefusedError):  # gone, changed, or a policy that is gone was still in force: once more
            if held := _finalizers(each):
                rest = [finalizer for finalizer in each["finalizers"] if finalizer not in held]
                api.patch(kind, name, {"metadata": {"finalizers": rest}}, namespace=namespace)
            # No kubelet says that the containers of a pod have ended.
            if kind == "pods" or "deletionTimestamp" not in each:
                api.delete(kind, name, namespace=namespace, grace_s=0 if kind == "pods" else None, wait=False)
    return bool(found)


def _foreign(api: Client, kind: str) -> list[dict[str, Any]]:
    """Return the metadata of the objects of a kind that have to be removed; namespaces take theirs along."""
    try:
        found = [each["metadata"] for each in api.list(kind)]
    except RefusedError as error:
        if error.status != 404:
            raise
        return []  # its definition is gone
    return [each for each in found if _finalizers(each) or _is_foreign(kind, each)]


def _finalizers(metadata: Mapping[str, Any]) -> list[str]:
    """Return the finalizers that no controller of Kubernetes removes."""
    own = ("kubernetes.io/", "k8s.io")
    return [each for each in metadata.get("finalizers", ()) if "/" in each and not any(part in each for part in own)]


def _is_foreign(kind: str, metadata: Mapping[str, Any]) -> bool:
    name, namespace = metadata["name"], metadata.get("namespace", "")
    if kind == "pods":  # their namespaces would wait for them
        return True
    if f"{kind} {name}" in _KEPT or not metadata.get("labels", {}).keys().isdisjoint(_LABELS):
        return False
    if namespace == "kube-system" and kind == "serviceaccounts":  # one for each controller
        return False
    return not namespace or namespace in _NAMESPACES
