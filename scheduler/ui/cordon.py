"""Cordons a card for a reader of the exposed page: after a review, and in the reader's own name.

The scheduler may not change Nodes, and lends no right of its own: it sends the reader's own token, so the API server
authorises, admits and audits the write as one of the reader. Where the page is served without tokens there is no route.
"""

from collections.abc import Callable
from typing import Final

import msgspec
from aiohttp import web

from allocation.names import CORDON
from allocation.wire.cordon import edited
from cluster.api import Api
from cluster.errors import ApiError, ClusterError, ConflictError
from cluster.events import Recorder
from cluster.metadata import AnnotatedMeta, Reference
from cluster.resource import NODES
from scheduler.api.access_reviews import AccessReviews
from scheduler.api.namespaced.gate import NamespaceGate, bearer_token, reviewing
from scheduler.api.responses import NOT_DECIDING, HttpError, json_handler, read_body
from scheduler.api.token_reviews import User
from scheduler.term import LeaderTerm
from scheduler.ui.same_origin import require_same_origin

CORDONS: Final = "/ui/nodes/{node}/cordon"
_LARGEST_BODY: Final = 1024
_ATTEMPTS: Final = 5
_SHOWN: Final = 300
"""As many characters of a text of others are repeated in an error."""


class Change(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """The body of a request: the card, and whether it is to take no new pods."""

    uuid: str
    cordoned: bool


class Permission(msgspec.Struct, frozen=True):
    """Whether the reader may cordon cards of the node."""

    allowed: bool


class Changed(msgspec.Struct, frozen=True):
    """Whether the list of the node is another one than before."""

    changed: bool


class _Node(msgspec.Struct):
    metadata: AnnotatedMeta


class _Routes:
    """The handlers."""

    def __init__(
        self,
        term: Callable[[], LeaderTerm | None],
        *,
        api: Api,
        gate: NamespaceGate,
        access: AccessReviews,
        recorder: Recorder,
    ) -> None:
        self._term = term
        self._api = api
        self._gate = gate
        self._access = access
        self._recorder = recorder

    async def permission(self, request: web.Request) -> msgspec.Struct:
        async with self._gate.identified(request) as user:
            return Permission(await self._allows(user, request.match_info["node"]))

    async def change(self, request: web.Request) -> msgspec.Struct:
        self._current()  # a replica that does not schedule reviews no callers
        require_same_origin(request)
        node = request.match_info["node"]
        async with self._gate.identified(request) as user:
            if not await self._allows(user, node):
                raise HttpError(
                    403,
                    f"{user.username} cannot patch node {node}; ask an administrator of the cluster for ClusterRole"
                    " tranche-operator",
                )
            asked = _read(await read_body(request, most=_LARGEST_BODY))
            self._require_card(node, asked)
            changed = await self._write(self._api.as_user(bearer_token(request)), node, asked)
            if changed:
                self._record(user, node, asked)
            return Changed(changed)

    async def _allows(self, user: User, node: str) -> bool:
        with reviewing():
            return await self._access.allows_object(user, verb="patch", resource=NODES, name=node)

    def _require_card(self, node: str, asked: Change) -> None:
        """Check that the node has the card, or had it when it was cordoned, so that nothing else gets into the list."""
        ledger = self._current().ledger
        inventory = ledger.inventory(node)
        cards = inventory.cards if inventory is not None else ()
        known = {card.uuid for card in cards} | {card.parent for card in cards if card.parent}
        if asked.uuid not in (known if asked.cordoned else known | ledger.cordon(node)):
            raise HttpError(404, f"node {node} has no card {asked.uuid[:_SHOWN]}; nothing was changed")

    async def _write(self, api: Api, node: str, asked: Change) -> bool:
        """Write the list; a write applies only to the version that was read."""
        try:
            for _ in range(_ATTEMPTS):
                now = (await api.get(NODES, _Node, name=node)).metadata
                new = edited(now.annotations.get(CORDON, ""), [asked.uuid], cordoned=asked.cordoned)
                if new is None:
                    return False
                written = {"resourceVersion": now.resource_version, "annotations": {CORDON: new or None}}
                try:
                    await api.merge(NODES, {"metadata": written}, name=node)
                except ConflictError:
                    continue
                return True
        except ApiError as error:
            status = error.status if error.status < 500 else 503
            raise HttpError(status, f"the API server refused the change: {error.message}") from None
        except ClusterError:
            raise HttpError(
                503, "the API server did not respond; look whether the card is changed, and try again"
            ) from None
        raise HttpError(409, f"others changed node {node} during each of {_ATTEMPTS} attempts; try again")

    def _current(self) -> LeaderTerm:
        term = self._term()
        if term is None:
            raise HttpError(503, NOT_DECIDING)
        return term

    def _record(self, user: User, node: str, asked: Change) -> None:
        done = "Cordoned" if asked.cordoned else "Uncordoned"
        self._recorder.record(
            Reference(NODES.kind, "", node, node),
            type="Normal",
            reason=f"Card{done}",
            action=done,
            note=f"{user.username} has {done.lower()} card {asked.uuid} on the page",
        )


def cordon_routes(
    term: Callable[[], LeaderTerm | None],
    *,
    api: Api,
    gate: NamespaceGate,
    access: AccessReviews,
    recorder: Recorder,
) -> list[web.RouteDef]:
    """Return the routes; `term` returns the current one, or None while this replica does not schedule."""
    routes = _Routes(term, api=api, gate=gate, access=access, recorder=recorder)
    return [web.get(CORDONS, json_handler(routes.permission)), web.post(CORDONS, json_handler(routes.change))]


def _read(body: bytes) -> Change:
    try:
        return msgspec.json.decode(body, type=Change)
    except (msgspec.DecodeError, UnicodeDecodeError) as error:
        raise HttpError(400, f'the body must be {{"uuid":UUID,"cordoned":true|false}}: {error}') from None
