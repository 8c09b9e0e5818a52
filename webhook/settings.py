"""What an administrator may decide about admission."""

import msgspec

from allocation.names import SYSTEM_NAMESPACE
from certs.ca_bundle import CONFIGURATION
from certs.settings import UpkeepSettings

_SERVICE = "tranche-webhook"


class WebhookSettings(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Of the admission webhook.

    Attributes:
        host: the address to listen on; empty means all of them.
        port: of the TLS server: reviews, `/healthz`, `/readyz`.
        metrics_port: of `/metrics` and, for probes, both health paths, without TLS.
        dns_names: by which the API server may call; in its certificate.
        ip_addresses: the same, as addresses.
        trusted: usernames that may create pods with a static allocation.
        aliases: scheduler names that mean ours, such as `hami-scheduler`.
        takeover: foreign scheduler names whose GPU pods are routed to us all the same.
        runtime_class_name: of GPU pods that name none; empty leaves them without.
        webhook_configuration: the MutatingWebhookConfiguration that carries our caBundle.
        certificates: how the process keeps them.
        drain_seconds: how long to serve on after SIGTERM, until every API server has stopped calling.
    """

    host: str = ""
    port: int = 8443
    metrics_port: int = 9090
    dns_names: tuple[str, ...] = (
        f"{_SERVICE}.{SYSTEM_NAMESPACE}.svc",
        f"{_SERVICE}.{SYSTEM_NAMESPACE}.svc.cluster.local",
        f"{_SERVICE}.{SYSTEM_NAMESPACE}",
        _SERVICE,
    )
    ip_addresses: tuple[str, ...] = ()
    trusted: tuple[str, ...] = (
        f"system:serviceaccount:{SYSTEM_NAMESPACE}:tranche-scheduler",
        f"system:serviceaccount:{SYSTEM_NAMESPACE}:tranche-static",
    )
    aliases: tuple[str, ...] = ()
    takeover: tuple[str, ...] = ()
    runtime_class_name: str = ""
    webhook_configuration: str = CONFIGURATION
    certificates: UpkeepSettings = UpkeepSettings()
    drain_seconds: float = 10.0
