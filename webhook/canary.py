"""The review that finds out whose certificate the API server has just accepted; who asks is `certs.canary`."""

import msgspec
from aiohttp import web

from allocation.names import CANARY
from certs.canary import proof
from certs.source import LeafSource
from webhook import patch, review


class _Meta(msgspec.Struct):
    annotations: dict[str, str] = {}


class _Object(msgspec.Struct):
    metadata: _Meta


def canary_routes(source: LeafSource) -> list[web.RouteDef]:
    """Answer the path of that review.

    The answer goes by the certificate that this very connection was made with, and closes it: the next one is made with
    the certificate of then.
    """

    async def answer(request: web.Request) -> web.Response:
        try:
            read = review.decode_review(await request.read())
            nonce = msgspec.json.decode(read.request.object, type=_Object).metadata.annotations.get(CANARY, "")
        except (review.UnreadableReviewError, *review.UNREADABLE) as error:
            return web.Response(status=400, text=str(error))
        connection = request.get_extra_info("ssl_object")
        told = proof(nonce, source.authority_of(connection.context))
        operation = patch.replace(patch.pointer("metadata", "annotations", CANARY), told)
        response = web.Response(
            body=review.allow(read, change=patch.encode([operation])), content_type="application/json"
        )
        response.force_close()
        return response

    return [web.post("/canary", answer)]
