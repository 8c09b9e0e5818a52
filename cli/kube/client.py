"""A client of the Kubernetes API over one kept connection, for commands that send a few requests and end.

`cluster.api` has the same verbs for the processes; loading its client takes longer than these requests.
"""

import http.client
import ssl
import time
from collections.abc import Mapping
from email.utils import parsedate_to_datetime
from typing import Any, Final, TypeVar
from urllib.parse import urlencode, urlsplit

import msgspec

from cli.errors import CommandError, MissingRightError
from cli.kube.access import Access
from cluster.backoff import Backoff
from cluster.errors import ApiError, GoneError, UnreachableError, from_answer
from cluster.metadata import ListMeta
from cluster.resource import Resource

T = TypeVar("T")

_PAGE: Final = "500"
_TIMEOUT: Final = 30.0
_BUSY_ATTEMPTS: Final = 6
_FIRST_PAUSE: Final = 0.1
_LONGEST_PAUSE: Final = 10.0
_JSON: Final = "application/json"
_MERGE_PATCH: Final = "application/merge-patch+json"
METADATA_ONLY: Final = "application/json;as=PartialObjectMetadata{};g=meta.k8s.io;v=v1"
"""The Accept header for objects whose metadata alone is read; the braces take `List` or nothing."""


class Client:
    """A client of one API server. Its methods raise only CommandError and ClusterError."""

    def __init__(self, access: Access, *, timeout: float = _TIMEOUT) -> None:
        self._access = access
        self._timeout = timeout
        self._kept: http.client.HTTPConnection | None = None
        self.clock_ahead = 0.0
        """By how many seconds the server's clock is ahead of the local one, as of the last response."""

    def __del__(self) -> None:
        """Close the connection: it is kept for as long as the client."""
        self._close()

    def get(
        self, resource: Resource, kind: type[T], *, name: str, namespace: str = "", metadata_only: bool = False
    ) -> T:
        """Read one object.

        Raises:
            NotFoundError: the object does not exist.
        """
        accept = METADATA_ONLY.format("") if metadata_only else _JSON
        body = self._ask("get", resource, name=name, namespace=namespace, accept=accept)
        return _decode(body, kind, resource)

    def list(
        self,
        resource: Resource,
        kind: type[T],
        *,
        namespace: str = "",
        field_selector: str = "",
        label_selector: str = "",
        metadata_only: bool = False,
    ) -> list[T]:
        """Read all objects of a namespace, or of the cluster, in pages.

        Raises:
            NotFoundError: the cluster does not define the resource.
        """
        page_type: Any = msgspec.defstruct("Page", [("metadata", ListMeta), ("items", list[kind] | None, None)])  # type: ignore[valid-type]
        accept = METADATA_ONLY.format("List") if metadata_only else _JSON
        selectors = {"fieldSelector": field_selector, "labelSelector": label_selector}
        params = {"limit": _PAGE, **{name: selector for name, selector in selectors.items() if selector}}
        objects: list[T] = []
        while True:
            try:
                body = self._ask("list", resource, namespace=namespace, params=params, accept=accept)
            except GoneError:
                if params.pop("continue", None) is None:
                    raise
                objects.clear()  # the server has compacted the version of the first pages: start again
                continue
            page = _decode(body, page_type, resource)
            objects += page.items or ()  # the server sends null for an empty list of metadata
            if not page.metadata.continue_:
                return objects
            params["continue"] = page.metadata.continue_

    def version(self, kind: type[T]) -> T:
        """Read the API server's version, which every user may read."""
        path = "/version"
        response, payload = self._exchange("GET", path, _JSON, None)
        if response.status >= 400:
            raise from_answer(request=f"get {path}", status=response.status, body=payload)
        return msgspec.json.decode(payload, type=kind)

    def send(
        self, method: str, target: str, *, body: bytes | None = None, headers: Mapping[str, str] = {}
    ) -> tuple[int, bytes]:
        """Send one request with a JSON body; return the status and the body of the response.

        Raises:
            UnreachableError: no response came.
        """
        response, payload = self._exchange(
            method, target, _JSON, body, headers={**headers, **({"Content-Type": _JSON} if body is not None else {})}
        )
        return response.status, payload

    def annotate(
        self,
        resource: Resource,
        *,
        name: str,
        version: str,
        annotations: Mapping[str, str | None],
        dry_run: bool,
        namespace: str = "",
    ) -> None:
        """Set annotations, or remove those that are None, if the object is still at `version`.

        Raises:
            ConflictError: the object has changed.
            NotFoundError: the object does not exist.
        """
        body = {"metadata": {"resourceVersion": version, "annotations": annotations}}
        params = {"fieldManager": "kubectl-gpu", **({"dryRun": "All"} if dry_run else {})}
        content = msgspec.json.encode(body)
        self._ask("patch", resource, name=name, namespace=namespace, params=params, body=content)

    def _ask(
        self,
        verb: str,
        resource: Resource,
        *,
        name: str = "",
        namespace: str = "",
        params: Mapping[str, str] = {},
        accept: str = _JSON,
        body: bytes | None = None,
    ) -> bytes:
        """Send one request and return the body; retry on 429, which the server has not carried out."""
        path = resource.path(namespace=namespace, name=name)
        target = f"{path}?{urlencode(params)}" if params else path
        method = "PATCH" if verb == "patch" else "GET"
        response, payload = self._exchange(method, target, accept, body)
        backoff = Backoff(first=_FIRST_PAUSE, longest=_LONGEST_PAUSE)
        for _ in range(_BUSY_ATTEMPTS):
            if response.status != 429:
                break
            time.sleep(backoff.next(requested=_retry_after(response)))
            response, payload = self._exchange(method, target, accept, body)
        if response.status < 400:
            return payload
        error = from_answer(request=f"{verb} {path}", status=response.status, body=payload)
        raise self._explained(error, verb=verb, resource=resource, namespace=namespace)

    def _explained(self, error: ApiError, *, verb: str, resource: Resource, namespace: str) -> Exception:
        if error.status == 401:
            owner = f"context {self._access.context}" if self._access.context else "this pod's ServiceAccount"
            return CommandError(
                f"{verb} {resource.plural}: the API server {self._access.server} does not accept the credentials of "
                f"{owner} (401): they may have expired; log in again, or choose another --context"
            )
        if error.status == 403:
            return MissingRightError(verb=verb, resource=resource.plural, namespace=namespace, server=error.message)
        return error

    def _exchange(
        self, method: str, target: str, accept: str, body: bytes | None, *, headers: Mapping[str, str] = {}
    ) -> tuple[http.client.HTTPResponse, bytes]:
        standard = {"Accept": accept, "User-Agent": "kubectl-gpu"}
        if body is not None:
            standard["Content-Type"] = _MERGE_PATCH
        headers = {**self._access.headers, **standard, **headers}
        server = self._access.server
        try:
            if self._kept is None:
                self._kept = self._connection()
            self._kept.request(method, urlsplit(server).path + target, body=body, headers=headers)
            response = self._kept.getresponse()
            payload = response.read()
        except ssl.SSLCertVerificationError as error:
            raise UnreachableError(
                f"the API server {server} presents a certificate that the kubeconfig does not trust: "
                f"{error.verify_message}; fetch the kubeconfig from the cluster again"
            ) from None
        except (OSError, http.client.HTTPException) as error:
            self._close()
            why = getattr(error, "strerror", None) or str(error) or type(error).__name__
            where = f"the server of context {self._access.context}" if self._access.context else "the pod's network"
            raise UnreachableError(
                f"the API server {server} cannot be reached: {why}; check {where} and the network"
            ) from None
        if date := response.headers.get("Date"):
            self.clock_ahead = parsedate_to_datetime(date).timestamp() - time.time()
        return response, payload

    def _close(self) -> None:
        if self._kept is not None:
            self._kept.close()
        self._kept = None

    def _connection(self) -> http.client.HTTPConnection:
        server, proxy = urlsplit(self._access.server), urlsplit(self._access.proxy)
        if proxy.scheme not in ("", "http"):
            raise CommandError(f"proxy {self._access.proxy}: only http:// proxies are supported; unset proxy-url")
        host, port = (proxy.hostname, proxy.port or 80) if proxy.hostname else (server.hostname, server.port)
        if self._access.tls is None:
            connection = http.client.HTTPConnection(host or "", port, timeout=self._timeout)
        else:
            connection = http.client.HTTPSConnection(host or "", port, timeout=self._timeout, context=self._access.tls)
        if proxy.hostname:
            connection.set_tunnel(server.hostname or "", server.port or (443 if self._access.tls else 80))
        return connection


def _decode(body: bytes, kind: type[T], resource: Resource) -> T:
    try:
        return msgspec.json.decode(body, type=kind)
    except (msgspec.DecodeError, UnicodeDecodeError) as error:
        raise CommandError(
            f"{resource.plural}: the server's response is not a {resource.kind}: {error}; is it an API server?"
        ) from None


def _retry_after(response: http.client.HTTPResponse) -> float | None:
    seconds = response.headers.get("Retry-After", "")
    return float(seconds) if seconds.isdigit() else None
