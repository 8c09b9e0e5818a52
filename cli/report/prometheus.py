"""Queries to Prometheus: at its own URL, or as a Service by the API server's proxy."""

import re
import ssl
from collections.abc import Mapping, Sequence
from typing import Final
from urllib.parse import urlencode

import msgspec

from cli.errors import CommandError
from cli.kube.access import Access
from cli.kube.client import Client
from cluster import proxy
from cluster.errors import UnreachableError

_SERVICE: Final = re.compile(r"(?P<namespace>[a-z0-9][-a-z0-9]*)/(?P<service>[a-z0-9][-a-z0-9]*)(?P<port>:[-a-z0-9]+)?")
_OK: Final = 200
_LONGEST: Final = 200


class Sample(msgspec.Struct):
    """One element of an instant vector: its labels, and the time with the value as text."""

    metric: dict[str, str]
    value: tuple[float, str]


class _Data(msgspec.Struct):
    result: list[Sample] = []


class _Answer(msgspec.Struct):
    status: str = ""
    error: str = ""
    data: _Data = msgspec.field(default_factory=_Data)


class Prometheus:
    """A client of one Prometheus, or of a server with its API. Its methods raise only CommandError."""

    def __init__(self, place: str, access: Access) -> None:
        """Ask at `place`: a URL, or NAMESPACE/SERVICE[:PORT] by the API server of `access`.

        Raises:
            CommandError: `place` is neither.
        """
        self._place = place
        if place.startswith(("http://", "https://")):
            tls = ssl.create_default_context() if place.startswith("https://") else None
            self._client = Client(Access(place.rstrip("/"), tls, proxy.of_environment(place), {}, "", ""))
            self._prefix = ""
            return
        service = _SERVICE.fullmatch(place)
        if service is None:
            raise CommandError(
                f"--prometheus {place!r} is neither a URL (http://… or https://…) nor NAMESPACE/SERVICE[:PORT], such as"
                " monitoring/prometheus-operated:9090"
            )
        self._client = Client(access)
        name = f"{service['service']}{service['port'] or ''}"
        self._prefix = f"/api/v1/namespaces/{service['namespace']}/services/{name}/proxy"

    def query(self, expression: str) -> Sequence[tuple[Mapping[str, str], float]]:
        """Return the labels and the value of each element of an instant vector."""
        target = f"{self._prefix}/api/v1/query?{urlencode({'query': expression})}"
        try:
            status, payload = self._client.send("GET", target)
        except UnreachableError as error:
            raise CommandError(f"Prometheus at {self._place} cannot be reached: {error}") from None
        try:
            answer = msgspec.json.decode(payload, type=_Answer)
            samples = [(each.metric, float(each.value[1])) for each in answer.data.result]
        except (msgspec.DecodeError, UnicodeDecodeError, ValueError):
            answer, samples = _Answer(), []
        if status != _OK or answer.status != "success":
            why = answer.error or payload[:_LONGEST].decode(errors="replace").strip() or "no message"
            raise CommandError(f"Prometheus at {self._place} did not answer the query (status {status}): {why}")
        return samples
