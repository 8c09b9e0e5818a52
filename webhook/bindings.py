"""The GPUBindings that admission looks up. Only the local copy is asked: the scheduler decides in any case."""

from collections import defaultdict
from collections.abc import Iterable, Mapping
from typing import Protocol

from allocation.bindings.binding import Binding
from allocation.bindings.granted import Granted
from allocation.settings import BindingSettings
from cluster.api import Api
from cluster.gpu_binding import GpuBinding
from cluster.informer import Informer
from cluster.resource import GPU_BINDINGS


class BindingLookup(Protocol):
    """Where admission finds what GPUBindings say about a pod."""

    def of_pod(self, labels: Mapping[str, str], namespace: str) -> Granted | None:
        """Return what bindings say about a GPU pod with these labels; None if they do not concern it."""


class ClusterBindings:
    """The bindings of a cluster, as far as the local copy has them.

    Attributes:
        informer: keeps the local copy; it must run.
    """

    def __init__(self, api: Api, settings: BindingSettings) -> None:
        """Use `api` for the copy; bindings count as the `settings` say."""
        self._settings = settings
        self._by_app: defaultdict[str, dict[str, Binding]] = defaultdict(dict)
        self.informer = Informer(api, GPU_BINDINGS, GpuBinding, on_upsert=self.set, on_delete=self.drop)

    def set(self, binding: GpuBinding, old: GpuBinding | None = None) -> None:
        """Set the state of a binding."""
        if old is not None:
            self.drop(old)
        self._by_app[binding.spec.app_name][binding.metadata.name] = binding.binding

    def drop(self, binding: GpuBinding) -> None:
        """Forget a binding."""
        of_app = self._by_app[binding.spec.app_name]
        of_app.pop(binding.metadata.name, None)
        if not of_app:
            del self._by_app[binding.spec.app_name]

    def of_pod(self, labels: Mapping[str, str], namespace: str) -> Granted | None:
        """See BindingLookup."""
        return Granted.of_labels(labels, namespace, find_bindings=self._of_app, settings=self._settings)

    def _of_app(self, app: str) -> Iterable[Binding]:
        return self._by_app.get(app, {}).values()


def cluster_bindings(api: Api, settings: BindingSettings) -> ClusterBindings | None:
    """Return the bindings of a cluster, or None where none counts."""
    return ClusterBindings(api, settings) if settings.mode != "off" else None
