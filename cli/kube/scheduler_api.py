"""A client of the scheduler's API for users with rights in one namespace: by the API server's proxy, or directly."""

import time
from collections.abc import Mapping
from typing import Final, TypeVar
from urllib.parse import quote, urlencode

import msgspec

from allocation.wire import resize_record
from allocation.wire.resize_record import Wish
from cli.errors import CommandError, MissingPackageError, MissingRightError
from cli.kube import scheduler_version
from cli.kube.access import Access, direct
from cli.kube.client import Client
from cli.kube.failure import failure_of
from cli.tables import note
from cluster.errors import UnreachableError
from scheduler.api import request_body
from scheduler.api.adjustment_types import AdjustmentAnswer
from scheduler.api.capacity_types import CapacityView
from scheduler.api.consolidation_types import ConsolidationExplanation, ConsolidationProgress
from scheduler.api.explanation_types import Explanation
from scheduler.api.gang_types import GangsView
from scheduler.api.namespaced.paths import (
    ADJUSTMENT,
    CAPACITY,
    CLUSTER_USAGE,
    CONSOLIDATION,
    GANGS,
    MOST_MOVES,
    POD_EXPLANATION,
    PROXY,
    QUEUES,
    SHARES,
    SIMULATION,
    TOKEN_HEADER,
    USAGE,
)
from scheduler.api.namespaced.shares_types import NamespaceShares
from scheduler.api.queue_types import QueuesView
from scheduler.api.request_body import Manifests
from scheduler.api.simulation_types import Simulation
from scheduler.api.usage_types import UsageView

T = TypeVar("T")

_RETRY_SECONDS: Final = 10.0
"""The proxy picks a random replica, and only the leader answers. The election of a new leader takes some seconds."""
_RETRIED: Final = frozenset({429, 502, 503, 504})
_PAUSES: Final = (0.05, 0.5)
NO_QUERY: Final[Mapping[str, str]] = {}


class SchedulerApi:
    """A client for one namespace at a time. Its methods raise only CommandError."""

    def __init__(
        self, access: Access, *, url: str = "", instead: MissingRightError | MissingPackageError | None = None
    ) -> None:
        """Send requests to `url`, or through the API server. `instead` is why the command cannot do without."""
        self._instead = instead
        self._access = access
        self._client = Client(direct(url) if url else access)
        self._prefix = "" if url else PROXY
        self._compared = False
        self._label = f"the scheduler at {url}" if url else "the scheduler"

    def explain(self, namespace: str, pod: str, *, node: str = "") -> Explanation:
        """Return the explanation of a pod, with the cards of `node`."""
        return self._request("GET", POD_EXPLANATION, Explanation, query=_cards_of(node), namespace=namespace, pod=pod)

    def simulate(self, namespace: str, manifests: Manifests, *, node: str = "") -> Simulation:
        """Return the simulation of a pod and its claims, with the cards of `node`."""
        body = request_body.encode(manifests)
        return self._request("POST", SIMULATION, Simulation, query=_cards_of(node), body=body, namespace=namespace)

    def capacity(self, namespace: str, manifests: Manifests | None) -> CapacityView:
        """Return how many more pods like one fit, or of the standard shapes."""
        if manifests is None:
            return self._request("GET", CAPACITY, CapacityView, namespace=namespace)
        body = request_body.encode(manifests)
        return self._request("POST", CAPACITY, CapacityView, body=body, namespace=namespace)

    def adjust(self, namespace: str, pod: str, wish: Wish) -> AdjustmentAnswer:
        """Return whether a running pod may have another size."""
        body = resize_record.encode_wish(wish).encode()
        return self._request("POST", ADJUSTMENT, AdjustmentAnswer, body=body, namespace=namespace, pod=pod)

    def consolidate(self, namespace: str, pod: str, *, most_moves: int) -> ConsolidationExplanation:
        """Move other pods so that a pod fits, at most `most_moves`; return the moves that have begun, or why not."""
        query = {MOST_MOVES: str(most_moves)}
        return self._request("POST", CONSOLIDATION, ConsolidationExplanation, query=query, namespace=namespace, pod=pod)

    def consolidation(self, namespace: str, pod: str) -> ConsolidationProgress:
        """Return how far the moves for a pod are."""
        return self._request("GET", CONSOLIDATION, ConsolidationProgress, namespace=namespace, pod=pod)

    def shares(self, namespace: str) -> NamespaceShares:
        """Return the shares of a namespace's pods."""
        return self._request("GET", SHARES, NamespaceShares, namespace=namespace)

    def usage(self, namespace: str) -> UsageView:
        """Return what the pods of a namespace really use; if it is empty, of all, with what the cards use."""
        return self._request("GET", USAGE if namespace else CLUSTER_USAGE, UsageView, namespace=namespace)

    def queues(self, namespace: str) -> QueuesView:
        """Return the queues that the pods of a namespace may use."""
        return self._request("GET", QUEUES, QueuesView, namespace=namespace)

    def gangs(self, namespace: str, *, name: str = "", after: str = "") -> GangsView:
        """Return a page of the gangs of a namespace, after the one `after`; with a `name` that gang with its pods."""
        query = {key: value for key, value in (("name", name), ("after", after)) if value}
        return self._request("GET", GANGS, GangsView, query=query, namespace=namespace)

    def _request(
        self,
        method: str,
        path: str,
        kind: type[T],
        *,
        query: Mapping[str, str] = NO_QUERY,
        body: bytes | None = None,
        **names: str,
    ) -> T:
        try:
            result = self._send(method, path, kind, query=query, body=body, **names)
        except CommandError as error:
            if self._instead is None:
                raise
            raise CommandError(f"{self._instead}; the scheduler was asked instead: {error}") from None
        if self._instead is not None:
            note(
                f"{self._instead.cause}, so the scheduler was asked instead; the usage of other namespaces is not shown"
            )
            self._instead = None
        if not self._compared:
            self._compared = True
            scheduler_version.warn_of_skew(self._client, prefix=self._prefix)
        return result

    def _send(
        self, method: str, path: str, kind: type[T], *, query: Mapping[str, str], body: bytes | None, **names: str
    ) -> T:
        target = self._prefix + path.format(**{name: quote(value, safe="") for name, value in names.items()})
        if query:
            target += f"?{urlencode(query)}"
        headers = {TOKEN_HEADER: self._token(names["namespace"])}
        deadline, pause = time.monotonic() + _RETRY_SECONDS, _PAUSES[0]
        while True:
            try:
                status, payload = self._client.send(method, target, body=body, headers=headers)
            except UnreachableError as error:
                raise CommandError(f"{self._label} cannot be reached: {error}") from None
            if status not in _RETRIED or time.monotonic() + pause > deadline:
                break
            time.sleep(pause)
            pause = min(2 * pause, _PAUSES[1])
        if status >= 400:
            raise CommandError(f"{self._label} refused the request ({status}): {failure_of(payload)}")
        try:
            return msgspec.json.decode(payload, type=kind)
        except (msgspec.DecodeError, UnicodeDecodeError) as error:
            raise CommandError(
                f"{self._label} sent a response that this kubectl-gpu cannot read: {error}; use the kubectl-gpu of the"
                " installed version"
            ) from None

    def _token(self, namespace: str) -> str:
        """Return the bearer token. The scheduler has the API server review it, so other credentials do not work."""
        if self._access.impersonates:
            raise CommandError(
                f"{self._label} identifies users by their own token, so --as is not supported: omit it, or use --token"
            )
        token = self._access.token
        if not token:
            where = namespace or "NAMESPACE"
            raise CommandError(
                f"{self._label} requires a bearer token, and the credentials in use have none (a client certificate"
                f" cannot be passed on): pass one, for example"
                f' --token "$(kubectl create token SERVICEACCOUNT -n {where})"'
            )
        return token


def _cards_of(node: str) -> Mapping[str, str]:
    """Return the query for the cards of a node."""
    return {"node": node} if node else NO_QUERY
