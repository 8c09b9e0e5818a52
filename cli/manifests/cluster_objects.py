"""What admission of a manifest's pods depends on: GPUBindings, GpuClaims, GpuQueues and GpuQuotas of the cluster.

Each kind is read only if a pod needs it. GpuClaims of the files come before those of the cluster.
"""

import argparse
from collections.abc import Iterable, Mapping
from functools import cached_property
from typing import Final

from allocation import names
from allocation.bindings.binding import AppIdentity, Binding
from allocation.bindings.granted import Granted
from allocation.claim import ClaimSpec
from allocation.fairness.queue_spec import QueueSpec
from allocation.fairness.quota_spec import QuotaSpec
from allocation.settings import BindingSettings
from cli.errors import CommandError
from cli.kube import own_kinds
from cli.kube.session import Session, open_session
from cli.manifests.manifest import objects_in
from cli.tables import note
from cluster.errors import ClusterError, NotFoundError
from cluster.gpu_claim import GpuClaim
from cluster.gpu_queue import GpuQueue
from cluster.gpu_quota import GpuQuota
from cluster.manifest import UnreadableManifestError
from cluster.resource import GPU_CLAIMS, GPU_QUEUES, GPU_QUOTAS
from scheduler.api.manifest_gpu_claim import read_gpu_claim
from webhook.membership import Membership

_SECONDS: Final = 5.0


class GpuBindings:
    """The bindings of a cluster, which is asked once, and only if a pod belongs to an application."""

    def __init__(self, arguments: argparse.Namespace) -> None:
        """Take the flags that choose the cluster and the namespace."""
        self._arguments = arguments
        self._bindings: list[Binding] | None = None
        self._namespace = arguments.namespace

    def bound(self, labels: Mapping[str, str], namespace: str, settings: BindingSettings) -> Granted | None:
        """Return what bindings say about a GPU pod with these labels; None if they do not concern it.

        An empty `namespace` is that of the command line or the kubeconfig.
        """
        if settings.mode != "off" and AppIdentity.of_labels(labels, namespace) is not None:
            self._read()
        return Granted.of_labels(labels, namespace or self._namespace, find_bindings=self._of_app, settings=settings)

    def _of_app(self, app: str) -> list[Binding]:
        return [each for each in self._bindings or () if each.spec.app_name == app]

    def _read(self) -> None:
        if self._bindings is not None:
            return
        self._bindings = []
        try:
            session = open_session(self._arguments, timeout=_SECONDS)
            self._namespace = session.namespace
            self._bindings = own_kinds.gpu_bindings(session.client)
        except (CommandError, ClusterError) as error:
            note(f"GPUBindings cannot be read: {error}: memory that they set is not filled in")


class UnknownClaimError(CommandError):
    """A pod names a claim that is nowhere, or that cannot be looked up."""


class GpuClaims:
    """The claims of files and of the cluster, which is asked only for names that the files do not have."""

    def __init__(self, claims: Iterable[GpuClaim], arguments: argparse.Namespace) -> None:
        """Take the claims of the files, and the flags that choose the cluster and the namespace."""
        self._of_files = tuple(claims)
        self._arguments = arguments

    def find(self, name: str, *, namespace: str) -> ClaimSpec:
        """Return a claim; an empty `namespace` is that of the command line or the kubeconfig.

        Raises:
            UnknownClaimError: it is nowhere, or the cluster cannot be asked.
        """
        own = namespace or self._default_namespace
        for claim in self._of_files:
            if (claim.metadata.namespace or self._default_namespace, claim.metadata.name) == (own, name):
                return claim.spec
        if isinstance(self._session, CommandError):
            raise _unasked(name, self._session)
        try:
            found = own_kinds.gpu_claim(self._session.client, name, namespace=own)
        except (CommandError, ClusterError) as error:
            raise _unasked(name, error) from None
        if found is None:
            raise UnknownClaimError(
                f"GpuClaim {name} is neither in the files nor in namespace {own} of the cluster; add it to the files,"
                " or create it first"
            )
        return found.spec

    @cached_property
    def _session(self) -> Session | CommandError:
        try:
            return open_session(self._arguments, timeout=_SECONDS)
        except CommandError as error:
            return error

    @property
    def _default_namespace(self) -> str:
        if self._arguments.namespace or isinstance(self._session, CommandError):
            return self._arguments.namespace or "default"
        return self._session.namespace


def claims_of(documents: Iterable[object]) -> list[GpuClaim]:
    """Return the claims of documents.

    Raises:
        CommandError: the API server would refuse a claim.
    """
    kind = (GPU_CLAIMS.api_version, GPU_CLAIMS.kind)
    objects = (each for document in documents for each in objects_in(document))
    try:
        return [read_gpu_claim(each) for each in objects if (each.get("apiVersion"), each.get("kind")) == kind]
    except UnreadableManifestError as error:
        raise CommandError(str(error)) from None


def _unasked(name: str, error: Exception) -> UnknownClaimError:
    return UnknownClaimError(
        f"GpuClaim {name} is not in the files, and the cluster cannot be asked: {error}; add the claim to the files"
    )


class GpuQueues:
    """The queues of a cluster, which is asked only if a pod names one."""

    def __init__(self, arguments: argparse.Namespace) -> None:
        """Take the flags that choose the cluster."""
        self._arguments = arguments
        self._unasked: set[str] = set()

    def membership(self, labels: Mapping[str, str], namespace: str) -> Membership | None:
        """Return the queue that a pod names by its own labels; None if it names none, or the cluster cannot be asked.

        Whether the queue is for the namespace is not checked: manifests are applied to any.
        """
        name = labels.get(names.QUEUE)
        if not name or name in self._unasked:
            return None
        try:
            session = open_session(self._arguments, timeout=_SECONDS)
            queue: QueueSpec | None = session.client.get(GPU_QUEUES, GpuQueue, name=name).spec
        except NotFoundError:
            queue = None
        except (CommandError, ClusterError) as error:
            self._unasked.add(name)
            note(f"GpuQueue {name} cannot be read: {error}: pods that request no resources are not changed by it")
            return None
        return Membership.of_labels(labels, namespace, of_namespace=None, find_queue={name: queue}.get)


class GpuQuotas:
    """The quotas of a cluster, which is asked once for each namespace. Without a cluster there are no quotas."""

    def __init__(self, arguments: argparse.Namespace) -> None:
        """Take the flags that choose the cluster and the namespace."""
        self._arguments = arguments
        self._specs: dict[str, Mapping[str, QuotaSpec]] = {}

    def of_namespace(self, namespace: str) -> Mapping[str, QuotaSpec]:
        """Return the quotas by name; an empty `namespace` is that of the command line or the kubeconfig."""
        if namespace not in self._specs:
            self._specs[namespace] = self._read(namespace)
        return self._specs[namespace]

    def _read(self, namespace: str) -> Mapping[str, QuotaSpec]:
        try:
            session = open_session(self._arguments, timeout=_SECONDS)
        except CommandError:
            return {}
        namespace = namespace or self._arguments.namespace or session.namespace
        try:
            quotas = session.client.list(GPU_QUOTAS, GpuQuota, namespace=namespace)
        except NotFoundError:
            return {}
        except (CommandError, ClusterError) as error:
            note(
                f"GpuQuotas of namespace {namespace} cannot be read: {error}: their limits and defaults are not applied"
            )
            return {}
        return {quota.metadata.name: quota.spec for quota in quotas}
