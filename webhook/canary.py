"""The route that reports which certificate the API server has just accepted; `certs.canary` is its client."""

import msgspec
from aiohttp import web

from allocation.names import CANARY
from certs import canary
from certs.source import LeafSource
from webhook import patch, review


class _Meta(msgspec.Struct):
    annotations: dict[str, str] = {}


class _Object(msgspec.Struct):
    metadata: _Meta


def canary_routes(source: LeafSource) -> list[web.RouteDef]:
    """Return the route of the canary review.

    The response names the authority of the certificate that this very connection was made with, and closes the
    connection, so that the next one uses the certificate that is current then.
    """

    async def answer(request: web.Request) -> web.Response:
        try:
            decoded = review.decode_review(await request.read())
            nonce = msgspec.json.decode(decoded.request.object, type=_Object).metadata.annotations.get(CANARY, "")
        except (review.UnreadableReviewError, *review.UNREADABLE) as error:
            return web.Response(status=400, text=str(error))
        connection = request.get_extra_info("ssl_object")
        value = canary.reply(nonce, source.authority_of(connection.context))
        operation = patch.replace(patch.pointer("metadata", "annotations", CANARY), value)
        response = web.Response(
            body=review.allow(decoded, patch_json=patch.encode([operation])), content_type="application/json"
        )
        response.force_close()
        return response

    return [web.post("/canary", answer)]
