"""Who may call the verbs from elsewhere: by a client certificate, or by a bearer token that the API server reviews."""

import hashlib
import logging
import ssl
import time
from collections.abc import Callable

import msgspec
from aiohttp import web
from aiohttp.typedefs import Handler, Middleware
from cryptography.x509 import load_der_x509_certificate
from cryptography.x509.oid import NameOID

from cluster.api import Api
from cluster.errors import ClusterError
from cluster.resource import TOKEN_REVIEWS
from scheduler.settings import ServingSettings

log = logging.getLogger(__name__)

_REMEMBER_SECONDS = 30.0
_REMEMBERED = 1024
_BEARER = "Bearer "


class _User(msgspec.Struct):
    username: str = ""
    groups: list[str] = []


class _Status(msgspec.Struct):
    authenticated: bool = False
    user: _User = msgspec.field(default_factory=_User)


class _Review(msgspec.Struct):
    status: _Status = msgspec.field(default_factory=_Status)


class Callers:
    """Tells who calls and whether he may."""

    def __init__(self, api: Api, settings: ServingSettings, *, clock: Callable[[], float] = time.monotonic) -> None:
        self._api = api
        self._settings = settings
        self._clock = clock
        self._known: dict[bytes, tuple[float, bool]] = {}

    async def refusal(self, request: web.Request) -> web.Response | None:
        """Answer what to tell a caller who may not call, None for one who may."""
        if not self._settings.knows_callers or self._is_certified(request):
            return None
        header = request.headers.get("Authorization", "")
        if not header.startswith(_BEARER):
            return web.Response(status=401, text="a client certificate or a bearer token is needed")
        try:
            allowed = await self._may(header.removeprefix(_BEARER))
        except ClusterError as error:
            log.warning("a token could not be reviewed: %s", error)
            return web.Response(status=503, text="the token could not be reviewed; try again")
        return None if allowed else web.Response(status=403, text="this caller may not call the extender")

    def _is_certified(self, request: web.Request) -> bool:
        """Whether the connection brought a certificate, which TLS has verified, of an allowed name."""
        tls: ssl.SSLObject | None = request.get_extra_info("ssl_object")
        certificate = tls.getpeercert(binary_form=True) if tls is not None else None
        if not certificate or not self._settings.client_ca_file:
            return False
        subject = load_der_x509_certificate(certificate).subject
        names = {str(name.value) for name in subject.get_attributes_for_oid(NameOID.COMMON_NAME)}
        return not self._settings.client_names or bool(names.intersection(self._settings.client_names))

    async def _may(self, token: str) -> bool:
        if not self._settings.users and not self._settings.groups:
            return False
        key, now = hashlib.sha256(token.encode()).digest(), self._clock()
        known = self._known.get(key)
        if known is not None and now < known[0]:
            return known[1]
        body = {"apiVersion": TOKEN_REVIEWS.api_version, "kind": TOKEN_REVIEWS.kind, "spec": {"token": token}}
        status = msgspec.json.decode(await self._api.create(TOKEN_REVIEWS, body), type=_Review).status
        allowed = status.authenticated and (
            status.user.username in self._settings.users
            or not set(status.user.groups).isdisjoint(self._settings.groups)
        )
        if len(self._known) >= _REMEMBERED:
            self._known.clear()
        self._known[key] = (now + _REMEMBER_SECONDS, allowed)
        return allowed


def guarding(callers: Callers, paths: frozenset[str]) -> Middleware:
    """Let nobody through to `paths` but who may call; nothing of a refused body is read."""

    @web.middleware
    async def guard(request: web.Request, handler: Handler) -> web.StreamResponse:
        resource = request.match_info.route.resource
        is_guarded = resource is not None and resource.canonical in paths
        refusal = await callers.refusal(request) if is_guarded else None
        return refusal if refusal is not None else await handler(request)

    return guard
