"""Check whether the admission webhook responds, as far as a client of the API server can see."""

import http.client
import ssl
from typing import Final
from urllib.parse import urlsplit

import msgspec

from cli.errors import MissingRightError
from cli.kube.client import Client
from cli.liveness import pods
from cli.liveness.liveness import Part
from cluster.errors import NotFoundError
from cluster.metadata import ObjectMeta
from cluster.resource import ENDPOINT_SLICES, MUTATING_WEBHOOKS

_SECONDS: Final = 3.0
_READY: Final = "/readyz"
_CANARY: Final = "canary."
_CONSEQUENCE: Final = "new GPU pods in opted-in namespaces are refused"


class _Service(msgspec.Struct, frozen=True):
    name: str
    namespace: str


class _ClientConfig(msgspec.Struct, frozen=True, rename="camel"):
    service: _Service | None = None
    url: str = ""
    ca_bundle: bytes = b""


class _Webhook(msgspec.Struct, frozen=True, rename="camel"):
    name: str = ""
    client_config: _ClientConfig = _ClientConfig()


class _Configuration(msgspec.Struct):
    metadata: ObjectMeta
    webhooks: tuple[_Webhook, ...] = ()


class _Conditions(msgspec.Struct, frozen=True):
    ready: bool | None = None


class _Endpoint(msgspec.Struct, frozen=True):
    conditions: _Conditions = _Conditions()


class _EndpointSlice(msgspec.Struct):
    metadata: ObjectMeta
    endpoints: tuple[_Endpoint, ...] | None = ()


def check(client: Client, *, configuration: str, apply_again: str) -> Part:
    """Return the state of the webhook of a MutatingWebhookConfiguration, which `apply_again` restores."""
    subject = f"MutatingWebhookConfiguration {configuration}"
    try:
        configured = client.get(MUTATING_WEBHOOKS, _Configuration, name=configuration)
    except NotFoundError:
        message = f"does not exist: {_CONSEQUENCE}, or started without their limits if the policies are missing too"
        return Part("webhook", "missing", subject, message, apply_again, stops=True)
    except MissingRightError as error:
        return Part("webhook", "unknown", subject, str(error))
    config = next((each.client_config for each in configured.webhooks if not each.name.startswith(_CANARY)), None)
    if config is None:
        return _broken(client, subject, "has no webhooks")
    if not config.ca_bundle:
        return _broken(
            client, subject, "has no caBundle, so the API server does not trust it: no replica was ever ready"
        )
    if config.service is not None:
        return _of_service(client, config.service)
    problem = _probe(config)
    if problem:
        return _broken(client, f"webhook {config.url}", problem)
    return Part("webhook", "working", f"webhook {config.url}")


def _of_service(client: Client, service: _Service) -> Part:
    subject = f"Service {service.namespace}/{service.name}"
    try:
        slices = client.list(
            ENDPOINT_SLICES,
            _EndpointSlice,
            namespace=service.namespace,
            label_selector=f"kubernetes.io/service-name={service.name}",
        )
    except MissingRightError as error:
        return Part("webhook", "unknown", subject, str(error))
    endpoints = [endpoint for each in slices for endpoint in each.endpoints or ()]
    if any(endpoint.conditions.ready is not False for endpoint in endpoints):
        return Part("webhook", "working", subject)
    return _broken(client, subject, "has no ready endpoint")


def _broken(client: Client, subject: str, problem: str) -> Part:
    why, next_step = pods.diagnose(pods.of_component(client, "webhook"), "webhook")
    return Part("webhook", "broken", subject, f"{problem} ({why}): {_CONSEQUENCE}", next_step, stops=True)


def _probe(config: _ClientConfig) -> str:
    """Return the problem with a webhook that is called by URL, or an empty string if it is ready."""
    server = urlsplit(config.url)
    try:
        tls = ssl.create_default_context(cadata=config.ca_bundle.decode())
        connection = http.client.HTTPSConnection(server.hostname or "", server.port, timeout=_SECONDS, context=tls)
        connection.request("GET", _READY)
        status = connection.getresponse().status
        connection.close()
    except ssl.SSLCertVerificationError as error:
        return f"presents a certificate that its caBundle does not verify: {error.verify_message}"
    except (OSError, ValueError, http.client.HTTPException) as error:
        return f"does not respond: {getattr(error, 'strerror', None) or error}"
    return "" if status == http.client.OK else f"is not ready (HTTP status {status})"
