"""Verbs of the API over one kept connection, for a command that asks a few times and ends.

`cluster.api` has the same verbs for processes that stay; its client takes longer to load than the answer takes.
"""

import http.client
import ssl
import time
from collections.abc import Mapping
from email.utils import parsedate_to_datetime
from typing import Any, Final, TypeVar
from urllib.parse import urlencode, urlsplit

import msgspec

from cli.access import Access
from cli.errors import CommandError, MissingRightError
from cluster.errors import ApiError, GoneError, UnreachableError, from_answer
from cluster.metadata import ListMeta
from cluster.resource import Resource

T = TypeVar("T")

_PAGE: Final = "500"
_TIMEOUT: Final = 30.0
_BUSY_ATTEMPTS: Final = 6
_LONGEST_PAUSE: Final = 10.0
_JSON: Final = "application/json"
_MERGE_PATCH: Final = "application/merge-patch+json"
METADATA_ONLY: Final = "application/json;as=PartialObjectMetadata{};g=meta.k8s.io;v=v1"
"""What to accept of objects of which only the metadata is read; the braces are for `List`."""


class Client:
    """Asks one API server. Raises CommandError and ClusterError only."""

    def __init__(self, access: Access, *, timeout: float = _TIMEOUT) -> None:
        self._access = access
        self._timeout = timeout
        self._kept: http.client.HTTPConnection | None = None
        self.clock_ahead = 0.0
        """By how many seconds the server's clock is ahead of ours, as of its last answer."""

    def get(
        self, resource: Resource, kind: type[T], *, name: str, namespace: str = "", metadata_only: bool = False
    ) -> T:
        """Read one object.

        Raises:
            NotFoundError: there is none.
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
        metadata_only: bool = False,
    ) -> list[T]:
        """Read all objects of a namespace, or of the cluster, in pages.

        Raises:
            NotFoundError: the cluster knows no such resource.
        """
        page_type: Any = msgspec.defstruct("Page", [("metadata", ListMeta), ("items", list[kind], [])])  # type: ignore[valid-type]
        accept = METADATA_ONLY.format("List") if metadata_only else _JSON
        params = {"limit": _PAGE, **({"fieldSelector": field_selector} if field_selector else {})}
        found: list[T] = []
        while True:
            try:
                body = self._ask("list", resource, namespace=namespace, params=params, accept=accept)
            except GoneError:
                if params.pop("continue", None) is None:
                    raise
                found.clear()  # the pages took longer than the server keeps their version: all of them anew
                continue
            page = _decode(body, page_type, resource)
            found += page.items
            if not page.metadata.continue_:
                return found
            params["continue"] = page.metadata.continue_

    def annotate(
        self, resource: Resource, *, name: str, version: str, annotations: Mapping[str, str | None], dry_run: bool
    ) -> None:
        """Set annotations, or remove those that are None, on condition that the object is still at `version`.

        Raises:
            ConflictError: it is not.
            NotFoundError: there is no such object.
        """
        body = {"metadata": {"resourceVersion": version, "annotations": annotations}}
        params = {"fieldManager": "kubectl-gpu", **({"dryRun": "All"} if dry_run else {})}
        self._ask("patch", resource, name=name, params=params, body=msgspec.json.encode(body))

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
        """Send one request and answer the body; a 429 was not carried out, so it is repeated a few times."""
        path = resource.path(namespace=namespace, name=name)
        target = f"{path}?{urlencode(params)}" if params else path
        method = "PATCH" if verb == "patch" else "GET"
        answer, payload = self._exchange(method, target, accept, body)
        for attempt in range(_BUSY_ATTEMPTS):
            if answer.status != 429:
                break
            time.sleep(_pause(answer, attempt))
            answer, payload = self._exchange(method, target, accept, body)
        if answer.status < 400:
            return payload
        error = from_answer(request=f"{verb} {path}", status=answer.status, body=payload)
        raise self._explained(error, verb=verb, resource=resource, namespace=namespace)

    def _explained(self, error: ApiError, *, verb: str, resource: Resource, namespace: str) -> Exception:
        if error.status == 401:
            who = f"context {self._access.context}" if self._access.context else "this pod's account"
            return CommandError(
                f"{verb} {resource.plural}: the API server {self._access.server} does not accept the credentials of "
                f"{who} (401): they may have expired; log in again, or choose another --context"
            )
        if error.status == 403:
            return MissingRightError(verb=verb, resource=resource.plural, namespace=namespace, server=error.message)
        return error

    # ---- the connection --------------------------------------------------------------------------------------------

    def _exchange(
        self, method: str, target: str, accept: str, body: bytes | None
    ) -> tuple[http.client.HTTPResponse, bytes]:
        headers = {**self._access.headers, "Accept": accept, "User-Agent": "kubectl-gpu"}
        if body is not None:
            headers["Content-Type"] = _MERGE_PATCH
        server = self._access.server
        try:
            if self._kept is None:
                self._kept = self._connection()
            self._kept.request(method, urlsplit(server).path + target, body=body, headers=headers)
            answer = self._kept.getresponse()
            payload = answer.read()
        except ssl.SSLCertVerificationError as error:
            raise UnreachableError(
                f"the API server {server} shows a certificate that does not fit the kubeconfig: "
                f"{error.verify_message}; fetch the kubeconfig anew"
            ) from None
        except (OSError, http.client.HTTPException) as error:
            self._kept = None
            why = getattr(error, "strerror", None) or str(error) or type(error).__name__
            where = f"the server of context {self._access.context}" if self._access.context else "the pod's network"
            raise UnreachableError(
                f"the API server {server} cannot be reached: {why}; check {where} and the network"
            ) from None
        if told := answer.headers.get("Date"):
            self.clock_ahead = parsedate_to_datetime(told).timestamp() - time.time()
        return answer, payload

    def _connection(self) -> http.client.HTTPConnection:
        server, proxy = urlsplit(self._access.server), urlsplit(self._access.proxy)
        if proxy.scheme not in ("", "http"):
            raise CommandError(f"proxy {self._access.proxy}: only http:// proxies are supported; unset proxy-url")
        host, port = (proxy.hostname, proxy.port or 80) if proxy.hostname else (server.hostname, server.port)
        if self._access.tls is None:
            plain = http.client.HTTPConnection(host or "", port, timeout=self._timeout)
        else:
            plain = http.client.HTTPSConnection(host or "", port, timeout=self._timeout, context=self._access.tls)
        if proxy.hostname:
            plain.set_tunnel(server.hostname or "", server.port or (443 if self._access.tls else 80))
        return plain


def _decode(body: bytes, kind: type[T], resource: Resource) -> T:
    try:
        return msgspec.json.decode(body, type=kind)
    except (msgspec.DecodeError, UnicodeDecodeError) as error:
        raise CommandError(
            f"{resource.plural}: what the server answered is no {resource.kind}: {error}; is it an API server?"
        ) from None


def _pause(answer: http.client.HTTPResponse, attempt: int) -> float:
    asked = answer.headers.get("Retry-After", "")
    return min(float(asked) if asked.isdigit() else 0.1 * 2**attempt, _LONGEST_PAUSE)
