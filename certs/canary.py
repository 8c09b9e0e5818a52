"""An admission that finds out whose certificates the API server believes.

The webhook shows what it is about to put into service to whoever calls it by its canary name. Only one object is ever
reviewed there, and only in a dry run: ours, which everybody who rotates may patch without keeping the change. The
answer tells whose certificate the API server has just accepted. So a new authority signs only after the API server
itself has verified a certificate of it, by its own caBundle and its own clock.
"""

import secrets

import msgspec
from cryptography.hazmat.primitives import hashes
from cryptography.x509 import Certificate

from allocation.names import CANARY, SYSTEM_NAMESPACE
from cluster.api import MERGE_PATCH, Api
from cluster.errors import ApiError, NotFoundError
from cluster.resource import CONFIG_MAPS

CONFIG_MAP = "tranche-webhook-canary"


class _Meta(msgspec.Struct):
    annotations: dict[str, str] = {}


class _ConfigMap(msgspec.Struct):
    metadata: _Meta


def fingerprint(certificate: Certificate) -> str:
    """Answer the SHA-256 of a certificate in hexadecimal."""
    return certificate.fingerprint(hashes.SHA256()).hex()


def proof(nonce: str, authority: Certificate | None) -> str:
    """Answer what the webhook puts in the place of `nonce`: the caller's word and whose certificate he was shown."""
    return f"{nonce} {'' if authority is None else fingerprint(authority)}"


async def objection(api: Api, *, authority: Certificate) -> str:
    """Answer why the API server is not known to believe `authority`, empty where it just did.

    Raises:
        UnreachableError: the API server did not answer.
    """
    nonce = secrets.token_hex(8)
    body = {"metadata": {"annotations": {CANARY: nonce}}}
    path = CONFIG_MAPS.path(namespace=SYSTEM_NAMESPACE, name=CONFIG_MAP)
    try:
        answer = await api.request("PATCH", path, params={"dryRun": "All"}, body=body, content_type=MERGE_PATCH)
    except NotFoundError:
        return f"there is no ConfigMap {SYSTEM_NAMESPACE}/{CONFIG_MAP}: apply the manifests"
    except ApiError as error:
        return f"the API server does not accept what the webhook shows by its canary name: {error.message}"
    told = msgspec.json.decode(answer, type=_ConfigMap).metadata.annotations.get(CANARY, "")
    if told == nonce:
        return "the API server does not call canary.gpu.scheduling: apply the manifests, or wait until it has seen them"
    if told != proof(nonce, authority):
        return "the API server reached a replica that does not show the new authority's certificates yet"
    return ""
