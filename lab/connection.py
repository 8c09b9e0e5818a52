"""Connections to the lab's API server as one identity: requests, their errors, and the streams of watches."""

from __future__ import annotations

import base64
import json
import ssl
import tempfile
from typing import TYPE_CHECKING, Any
from urllib.parse import urlencode

import urllib3
import yaml

from lab.errors import LabError

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping
    from pathlib import Path

USER_AGENT = "tranche-lab"
TIMEOUT_S = 60.0

Object = dict[str, Any]


class RefusedError(LabError):
    """The API server refused a request.

    Attributes:
        status: the HTTP status.
        reason: the reason of the Status object, such as `NotFound`.
        message: its message.
    """

    def __init__(self, request: str, *, status: int, reason: str, message: str) -> None:
        """Describe a refused request."""
        self.status, self.reason, self.message = status, reason, message
        super().__init__(request, why=f"{status} {reason}: {message}", remedy="change the request")


class Connection:
    """Connections of one identity, kept between requests.

    Args:
        kubeconfig: the server and the credentials, both embedded.
        user: the user to impersonate, if any.
        groups: its groups.
    """

    def __init__(self, kubeconfig: Path, *, user: str = "", groups: tuple[str, ...] = ()) -> None:
        """Read the kubeconfig; connect with the first request."""
        content = yaml.safe_load(kubeconfig.read_text(encoding="utf-8"))
        cluster, credentials = content["clusters"][0]["cluster"], content["users"][0]["user"]
        context = ssl.create_default_context(cadata=_decoded(cluster["certificate-authority-data"]))
        headers = urllib3.HTTPHeaderDict({"User-Agent": USER_AGENT})
        if token := credentials.get("token"):
            headers["Authorization"] = f"Bearer {token}"
        else:
            _load_leaf(context, credentials)
        if user:
            headers["Impersonate-User"] = user
        for group in groups:
            headers.add("Impersonate-Group", group)
        self._server: str = cluster["server"]
        self._headers = headers
        # A response that was lost is asked for again if the request only reads; 429 is repeated as clients do.
        retries = urllib3.Retry(connect=0, read=1, status=5, other=0, status_forcelist=(429,), raise_on_status=False)
        self._pool = urllib3.PoolManager(maxsize=8, ssl_context=context, timeout=TIMEOUT_S, retries=retries)

    def request(
        self,
        method: str,
        path: str,
        *,
        body: Any = None,
        content_type: str = "application/json",
        accept: str = "application/json",
        **query: str,
    ) -> Object:
        """Send a request; return the decoded response. Parameters of `query` that are empty are left out.

        Raises:
            RefusedError: the API server refused it.
            LabError: no response arrived.
        """
        given = json.dumps(body) if body is not None else None
        response = self._send(method, path, query, body=given, headers={"Content-Type": content_type, "Accept": accept})
        if response.status >= 400:
            raise _refused(f"{method} {path}", response)
        content: Object = json.loads(response.data)
        return content

    def stream(self, path: str, **query: str) -> Iterator[Object]:
        """Yield the objects of a response that has one in each line, until the server ends it or is lost."""
        response = self._send("GET", path, query, is_stream=True)
        rest = b""
        try:
            for part in response.stream(decode_content=True):
                *lines, rest = (rest + part).split(b"\n")
                yield from map(json.loads, lines)
        except urllib3.exceptions.HTTPError:
            return
        finally:
            response.close()

    def _send(
        self,
        method: str,
        path: str,
        query: Mapping[str, str],
        *,
        body: str | None = None,
        headers: Mapping[str, str] | None = None,
        is_stream: bool = False,
    ) -> urllib3.BaseHTTPResponse:
        given = urlencode({name: value for name, value in query.items() if value})
        separator = "&" if "?" in path else "?"
        url = f"{self._server}{path}{separator + given if given else ''}"
        sent = self._headers.copy()
        sent.update(headers or {})
        try:
            return self._pool.request(method, url, body=body, headers=sent, preload_content=not is_stream)
        except urllib3.exceptions.HTTPError as error:
            raise LabError(f"{method} {path}", why=str(error), remedy="run `make status`") from None


def _load_leaf(context: ssl.SSLContext, credentials: Mapping[str, str]) -> None:
    """Load a client certificate; the ssl module reads it only from files."""
    with tempfile.NamedTemporaryFile("w", suffix=".pem") as file:
        file.write(_decoded(credentials["client-certificate-data"]) + _decoded(credentials["client-key-data"]))
        file.flush()
        context.load_cert_chain(file.name)


def _decoded(data: str) -> str:
    return base64.b64decode(data).decode()


def _refused(request: str, response: urllib3.BaseHTTPResponse) -> RefusedError:
    try:
        content = json.loads(response.data)
    except ValueError:
        content = {"message": response.data.decode(errors="replace")[:500]}
    return RefusedError(
        request, status=response.status, reason=content.get("reason", ""), message=content.get("message", "")
    )
