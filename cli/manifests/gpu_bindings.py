"""The GPUBindings of the applications to which the pods of manifests belong, from the cluster."""

import argparse
from collections.abc import Mapping
from typing import Final

from allocation.bindings.binding import AppIdentity, Binding
from allocation.settings import BindingSettings
from cli.errors import CommandError
from cli.kube import gpu_bindings
from cli.kube.session import open_session
from cli.tables import note
from cluster.errors import ClusterError
from webhook.bound_pod import BoundPod

_SECONDS: Final = 5.0


class GpuBindings:
    """The bindings of a cluster, which is asked once, and only if a pod belongs to an application."""

    def __init__(self, arguments: argparse.Namespace) -> None:
        """Take the flags that choose the cluster and the namespace."""
        self._arguments = arguments
        self._bindings: list[Binding] | None = None
        self._namespace = arguments.namespace

    def bound(self, labels: Mapping[str, str], namespace: str, settings: BindingSettings) -> BoundPod | None:
        """Return what bindings say about a GPU pod with these labels; None if they do not concern it.

        An empty `namespace` is that of the command line or the kubeconfig.
        """
        if settings.mode != "off" and AppIdentity.of_labels(labels, namespace) is not None:
            self._read()
        return BoundPod.of_labels(labels, namespace or self._namespace, find_bindings=self._of_app, settings=settings)

    def _of_app(self, app: str) -> list[Binding]:
        return [each for each in self._bindings or () if each.spec.app_name == app]

    def _read(self) -> None:
        if self._bindings is not None:
            return
        self._bindings = []
        try:
            session = open_session(self._arguments, timeout=_SECONDS)
            self._namespace = session.namespace
            self._bindings = gpu_bindings.read(session.client)
        except (CommandError, ClusterError) as error:
            note(f"GPUBindings cannot be read: {error}: memory that they set is not filled in")
