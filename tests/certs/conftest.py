"""An API server in memory with the requests that certificates need."""

import asyncio
import base64
import copy
import json
from collections.abc import Awaitable, Callable
from typing import Any

import pytest
from cryptography import x509
from cryptography.hazmat.primitives.hashes import SHA256

from certs import authority_reconciler
from cluster.api import Api
from cluster.errors import from_answer
from lab.layout import Layout
from tests.certs.support import replicas

SECRET = "/api/v1/namespaces/tranche-system/secrets/tranche-webhook-ca"  # noqa: S105 -- a path
CANARY = "/api/v1/namespaces/tranche-system/configmaps/tranche-webhook-canary"
CONFIGURATION = "/apis/admissionregistration.k8s.io/v1/mutatingwebhookconfigurations/tranche"


@pytest.fixture(scope="module")
def installed(control_plane: Layout) -> Layout:
    """Return the suite's cluster with our manifests and a namespace that opted in."""
    return replicas.with_team(control_plane)


async def _do_nothing(_method: str, _path: str) -> None:
    pass


class Objects(Api):
    """Objects by path, versioned as an API server does it.

    Attributes:
        objects: the objects by their paths.
        requests: method and path of each request, in order.
        before: awaited before each request; it may change the objects, as other clients do, or take time.
        after: called after each write.
        accepts: returns the authority that the API server accepts at the canary; by default the next signer.
    """

    CANARY = CANARY
    SECRET = SECRET
    CONFIGURATION = CONFIGURATION

    def __init__(self) -> None:
        self.objects: dict[str, Any] = {}
        self.requests: list[tuple[str, str]] = []
        self.before: Callable[[str, str], Awaitable[None]] = _do_nothing
        self.after: Callable[[], None] = lambda: None
        self.accepts: Callable[[], x509.Certificate | None] = self._newest
        self._version = 0

    async def request(
        self,
        method: str,
        path: str,
        *,
        body: Any = None,
        content_type: str = "application/json",
        **_options: Any,
    ) -> bytes:
        """Handle a request as an API server does."""
        await self.before(method, path)
        self.requests.append((method, path))
        if path == CANARY:
            return self._answer_canary(body)
        if method == "GET":
            return json.dumps(self._get(method, path)).encode()
        if method == "POST":
            path = f"{path}/{body['metadata']['name']}"
            if path in self.objects:
                raise _error(method, path, 409)
            self.put(path, body)
            return b"{}"
        assert method == "PATCH"
        changed = copy.deepcopy(self._get(method, path))
        change = _json_patch if content_type == "application/json-patch+json" else _merge_patch
        change(changed, body)
        if changed["metadata"]["resourceVersion"] != self.objects[path]["metadata"]["resourceVersion"]:
            raise _error(method, path, 409)
        self.put(path, changed)
        return b"{}"

    def put(self, path: str, content: dict[str, Any]) -> None:
        """Create or replace an object."""
        self._version += 1
        old = self.objects.get(path, {})
        content = copy.deepcopy(content)
        metadata = content.setdefault("metadata", {})
        metadata["resourceVersion"] = str(self._version)
        if content.get("webhooks") != old.get("webhooks"):
            metadata["generation"] = self._version
        self.objects[path] = content
        self.after()

    def put_secret(self, **data: bytes) -> None:
        """Create or replace the authorities' Secret, with keys such as `tls_crt` and `tls_key`."""
        encoded = {key.replace("_", "."): base64.b64encode(value).decode() for key, value in data.items()}
        self.put(SECRET, {"data": encoded})

    def put_configuration(self, *bundles: bytes | None) -> None:
        """Create or replace the configuration, with an entry for each bundle."""
        entries = [
            {
                "name": f"w{number}.gpu.scheduling",
                "clientConfig": {
                    "service": {"name": "s"},
                    **({} if bundle is None else {"caBundle": base64.b64encode(bundle).decode()}),
                },
                "failurePolicy": "Ignore",
            }
            for number, bundle in enumerate(bundles)
        ]
        self.put(CONFIGURATION, {"metadata": {"name": "tranche", "uid": "u"}, "webhooks": entries})

    def data(self) -> dict[str, bytes]:
        """Return the data of the Secret."""
        return {key: base64.b64decode(value) for key, value in self.objects[SECRET]["data"].items()}

    def bundles(self) -> list[bytes]:
        """Return the caBundle of each entry."""
        entries = self.objects[CONFIGURATION]["webhooks"]
        return [base64.b64decode(entry["clientConfig"].get("caBundle", "")) for entry in entries]

    def writes(self) -> list[tuple[str, str]]:
        """Return the requests that may change an object, which dry runs do not."""
        return [request for request in self.requests if request[0] != "GET" and request[1] != CANARY]

    def _answer_canary(self, body: Any) -> bytes:
        nonce = body["metadata"]["annotations"]["gpu.scheduling/canary"]
        accepted = self.accepts()
        annotation = f"{nonce} {accepted.fingerprint(SHA256()).hex() if accepted is not None else ''}"
        return json.dumps({"metadata": {"annotations": {"gpu.scheduling/canary": annotation}}}).encode()

    def _newest(self) -> x509.Certificate | None:
        if SECRET not in self.objects:
            return None
        data = self.data()
        return x509.load_pem_x509_certificate(data.get("announced.crt", data["tls.crt"]))

    def _get(self, method: str, path: str) -> Any:
        if path not in self.objects:
            raise _error(method, path, 404)
        return self.objects[path]


def _json_patch(target: Any, operations: list[dict[str, Any]]) -> None:
    for operation in operations:
        *parents, last = operation["path"].split("/")[1:]
        place = target
        for step in parents:
            place = place[int(step) if isinstance(place, list) else step]
        place[last] = operation["value"]


def _merge_patch(target: Any, change: dict[str, Any]) -> None:
    for key, value in change.items():
        if value is None:
            target.pop(key, None)
        elif isinstance(value, dict):
            _merge_patch(target.setdefault(key, {}), value)
        else:
            target[key] = value


def _error(method: str, path: str, status: int) -> Exception:
    return from_answer(request=f"{method} {path}", status=status, body=b"{}")


@pytest.fixture
def api(monkeypatch: pytest.MonkeyPatch) -> Objects:
    """Return an API server without objects; reconcilers back off without a pause."""
    monkeypatch.setattr(authority_reconciler, "_back_off", lambda _turn: asyncio.sleep(0))
    return Objects()


@pytest.fixture(scope="session")
def make_api() -> type[Objects]:
    """Return the class of API servers, of which each example of a property creates one."""
    return Objects
