"""A dry-run admission that shows which authority the API server trusts.

The webhook serves the certificate that it is about to put into service to clients that call it by its canary name. The
API server calls that name for one object only, and only in a dry run: the ConfigMap `tranche-webhook-canary`, which
every process that rotates may patch without changing it. The response names the authority of the certificate that the
API server has just accepted. So a new authority signs only after the API server itself has verified a certificate of
it, with its own caBundle and its own clock.
"""

import secrets

import msgspec
from cryptography.x509 import Certificate

from allocation.names import CANARY, SYSTEM_NAMESPACE
from certs.x509 import fingerprint
from cluster.api import MERGE_PATCH, Api
from cluster.errors import ApiError, NotFoundError
from cluster.resource import CONFIG_MAPS

CONFIG_MAP = "tranche-webhook-canary"


class _Meta(msgspec.Struct):
    annotations: dict[str, str] = {}


class _ConfigMap(msgspec.Struct):
    metadata: _Meta


def reply(nonce: str, authority: Certificate | None) -> str:
    """Return the annotation that the webhook writes in place of `nonce`: the nonce and the authority's fingerprint."""
    return f"{nonce} {'' if authority is None else fingerprint(authority)}"


async def problem(api: Api, *, authority: Certificate) -> str:
    """Return the reason why the API server is not known to trust `authority`, or an empty string.

    Raises:
        UnreachableError: the API server did not answer.
    """
    nonce = secrets.token_hex(8)
    body = {"metadata": {"annotations": {CANARY: nonce}}}
    path = CONFIG_MAPS.path(namespace=SYSTEM_NAMESPACE, name=CONFIG_MAP)
    try:
        patched = await api.request("PATCH", path, params={"dryRun": "All"}, body=body, content_type=MERGE_PATCH)
    except NotFoundError:
        return f"ConfigMap {SYSTEM_NAMESPACE}/{CONFIG_MAP} does not exist: apply the manifests"
    except ApiError as error:
        return f"the API server does not accept the certificate that the webhook serves as canary: {error.message}"
    annotation = msgspec.json.decode(patched, type=_ConfigMap).metadata.annotations.get(CANARY, "")
    if annotation == nonce:
        return (
            "the API server does not call webhook canary.gpu.scheduling: apply the manifests, or wait until the API"
            " server has observed them"
        )
    if annotation != reply(nonce, authority):
        return "the API server reached a replica that does not serve a certificate of the new authority yet"
    return ""
