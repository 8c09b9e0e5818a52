"""An API server in memory that knows just what certificates need."""

import base64
import json
from collections.abc import Callable
from typing import Any

import pytest

from cluster.api import Api
from cluster.errors import from_answer

_AUTHORITY = "/api/v1/namespaces/tranche-system/secrets/tranche-webhook-ca"


class Objects(Api):
    """Objects by path; `before` is called ahead of each request and may change them, as others do.

    Attributes:
        objects: what there is.
        requests: method and path of each request, in order.
        before: called with the method and the path.
    """

    def __init__(self) -> None:
        self.objects: dict[str, Any] = {}
        self.requests: list[tuple[str, str]] = []
        self.before: Callable[[str, str], None] = lambda _method, _path: None

    async def request(
        self,
        method: str,
        path: str,
        *,
        body: Any = None,
        content_type: str = "application/json",
        **_options: Any,
    ) -> bytes:
        """Answer as an API server would."""
        self.before(method, path)
        self.requests.append((method, path))
        if method == "GET":
            return json.dumps(self._found(method, path)).encode()
        if method == "POST":
            path = f"{path}/{body['metadata']['name']}"
            if path in self.objects:
                raise _error(method, path, 409)
            self.objects[path] = body
            return b"{}"
        assert (method, content_type) == ("PATCH", "application/json-patch+json")
        found = self._found(method, path)
        for operation in body:
            *parents, last = operation["path"].split("/")[1:]
            place = found
            for step in parents:
                place = place[int(step) if isinstance(place, list) else step]
            if operation["op"] == "test" and place[last] != operation["value"]:
                raise _error(method, path, 422)
            place[last] = operation["value"]
        return b"{}"

    def _found(self, method: str, path: str) -> Any:
        if path not in self.objects:
            raise _error(method, path, 404)
        return self.objects[path]

    def put_secret(self, **data: bytes) -> None:
        """Put the authority's Secret there, with keys `tls_crt` and `tls_key`."""
        encoded = {key.replace("_", "."): base64.b64encode(value).decode() for key, value in data.items()}
        self.objects[_AUTHORITY] = {"data": encoded}


def _error(method: str, path: str, status: int) -> Exception:
    return from_answer(request=f"{method} {path}", status=status, body=b"{}")


@pytest.fixture
def api() -> Objects:
    """An API server without objects."""
    return Objects()
