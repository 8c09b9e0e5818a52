"""Authentication of remote callers: by a client certificate, or by a bearer token that the API server reviews."""

import logging
import ssl

from aiohttp import web
from aiohttp.typedefs import Handler, Middleware
from cryptography.x509 import load_der_x509_certificate
from cryptography.x509.oid import NameOID

from cluster.errors import ClusterError
from scheduler.api.token_reviews import TokenReviews
from scheduler.serving_settings import ServingSettings

log = logging.getLogger(__name__)

_BEARER = "Bearer "


class Authenticator:
    """Authenticates callers, and checks that the settings allow them."""

    def __init__(self, tokens: TokenReviews, settings: ServingSettings) -> None:
        self._tokens = tokens
        self._settings = settings

    async def refusal(self, request: web.Request) -> web.Response | None:
        """Return the error response for a caller that is not allowed, or None for an allowed caller."""
        if not self._settings.knows_callers or self._is_certified(request):
            return None
        header = request.headers.get("Authorization", "")
        if not header.startswith(_BEARER):
            return web.Response(status=401, text="a client certificate or a bearer token is required")
        try:
            is_allowed = await self._is_token_allowed(header.removeprefix(_BEARER))
        except ClusterError as error:
            log.warning("the API server did not review a token: %s", error)
            return web.Response(status=503, text="the API server did not review the token; try again")
        if not is_allowed:
            return web.Response(status=403, text="the scheduler's settings do not allow this caller")
        return None

    def _is_certified(self, request: web.Request) -> bool:
        """Whether the connection has a client certificate, which TLS has verified, with an allowed name."""
        tls: ssl.SSLObject | None = request.get_extra_info("ssl_object")
        certificate = tls.getpeercert(binary_form=True) if tls is not None else None
        if not certificate or not self._settings.client_ca_file:
            return False
        subject = load_der_x509_certificate(certificate).subject
        names = {str(name.value) for name in subject.get_attributes_for_oid(NameOID.COMMON_NAME)}
        return not self._settings.client_names or bool(names.intersection(self._settings.client_names))

    async def _is_token_allowed(self, token: str) -> bool:
        if not self._settings.users and not self._settings.groups:
            return False
        user = await self._tokens.user(token)
        return user is not None and (
            user.username in self._settings.users or not set(user.groups).isdisjoint(self._settings.groups)
        )


def require_caller(authenticator: Authenticator, paths: frozenset[str]) -> Middleware:
    """Refuse callers of `paths` that are not allowed, before anything of the body is read."""

    @web.middleware
    async def guard(request: web.Request, handler: Handler) -> web.StreamResponse:
        resource = request.match_info.route.resource
        is_guarded = resource is not None and resource.canonical in paths
        refusal = await authenticator.refusal(request) if is_guarded else None
        return refusal if refusal is not None else await handler(request)

    return guard
