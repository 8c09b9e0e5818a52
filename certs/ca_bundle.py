"""The caBundle of the MutatingWebhookConfiguration: by which authority the API server verifies the webhook."""

import asyncio
import base64
import binascii
from collections.abc import Mapping

import msgspec

from cluster.api import Api
from cluster.errors import ApiError, ClusterError
from cluster.resource import MUTATING_WEBHOOKS

CONFIGURATION = "tranche"

_JSON_PATCH = "application/json-patch+json"
_ATTEMPTS = 5
_PAUSE = 0.1
_CHANGED_MEANWHILE = (409, 422)


class _ClientConfig(msgspec.Struct, rename="camel"):
    ca_bundle: str = ""


class _Webhook(msgspec.Struct, rename="camel"):
    name: str
    client_config: _ClientConfig


class _Configuration(msgspec.Struct):
    webhooks: list[_Webhook] = []


async def publish(api: Api, *, bundle: bytes, configuration: str = CONFIGURATION) -> bool:
    """Write `bundle` (PEM) into every entry of `configuration` that has another; answer whether it wrote any.

    Only caBundle is written, and only into entries that still are where they were read.

    Raises:
        NotFoundError: the configuration does not exist; apply the manifests.
        ClusterError: the API server refused or did not answer.
    """
    wanted = base64.b64encode(bundle).decode()
    path = MUTATING_WEBHOOKS.path(name=configuration)
    for attempt in range(_ATTEMPTS):
        found = await api.get(MUTATING_WEBHOOKS, _Configuration, name=configuration)
        operations = [
            operation
            for position, webhook in enumerate(found.webhooks)
            if webhook.client_config.ca_bundle != wanted
            for operation in _operations(position, webhook.name, wanted)
        ]
        if not operations:
            return False
        try:
            await api.request("PATCH", path, body=operations, content_type=_JSON_PATCH)
        except ApiError as error:
            if error.status not in _CHANGED_MEANWHILE:
                raise
            await asyncio.sleep(_PAUSE * 2**attempt)
        else:
            return True
    raise ClusterError(
        f"MutatingWebhookConfiguration {configuration} changed {_ATTEMPTS} times while its caBundle was being written;"
        " is another certificate tool writing it?"
    )


async def published(api: Api, *, configuration: str = CONFIGURATION) -> dict[str, bytes]:
    """Answer the caBundle (PEM) of each entry of `configuration`, empty where it has none.

    Raises:
        NotFoundError: the configuration does not exist.
        ClusterError: the API server refused or did not answer.
    """
    found = await api.get(MUTATING_WEBHOOKS, _Configuration, name=configuration)
    return {webhook.name: _decoded(webhook.client_config.ca_bundle) for webhook in found.webhooks}


def _operations(position: int, name: str, bundle: str) -> tuple[Mapping[str, str], ...]:
    return (
        {"op": "test", "path": f"/webhooks/{position}/name", "value": name},
        {"op": "add", "path": f"/webhooks/{position}/clientConfig/caBundle", "value": bundle},
    )


def _decoded(bundle: str) -> bytes:
    try:
        return base64.b64decode(bundle)
    except binascii.Error:
        return b""
