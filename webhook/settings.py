"""Settings of admission."""

import msgspec

from allocation.isolation import Isolation
from allocation.names import SYSTEM_NAMESPACE
from certs.ca_bundle import CONFIGURATION
from certs.settings import ServerCertificateSettings

_SERVICE = "tranche-webhook"


class WebhookSettings(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Settings of the admission webhook.

    Attributes:
        host: the address to listen on; empty means all addresses.
        port: the port of the TLS server, with reviews, `/healthz` and `/readyz`.
        metrics_port: the port of `/metrics` and, for probes, of both health paths, without TLS.
        dns_names: the names in the certificate, by which the API server may call.
        ip_addresses: the addresses in the certificate.
        trusted: usernames that may create pods with a static allocation.
        aliases: scheduler names that mean our scheduler, such as `hami-scheduler`.
        takeover: names of other schedulers whose GPU pods are routed to our scheduler.
        included_namespaces: the namespaces that webhook_configuration opts in by their names. As excluded_namespaces,
            it is for evaluations without the API server, which decides by the selectors of this object.
        excluded_namespaces: the namespaces for whose pods webhook_configuration never calls.
        runtime_class_name: the RuntimeClass of GPU pods that do not name one; empty sets none.
        isolation: what enforces the limits of GPU pods, where neither the pod nor its namespace says it.
        allowed_isolations: what pods and namespaces may choose; without `none`, no pod goes without enforcement.
        longest_grace_seconds: the longest `terminationGracePeriodSeconds` of a GPU pod, to which longer ones are
            reduced; 0 reduces none.
        webhook_configuration: the MutatingWebhookConfiguration that carries our caBundle.
        certificates: the source of the certificate and how it is renewed.
        drain_seconds: how long to continue serving after SIGTERM, until every API server has stopped calling.
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
    included_namespaces: tuple[str, ...] = ()
    excluded_namespaces: tuple[str, ...] = ("kube-system", "kube-public", "kube-node-lease", SYSTEM_NAMESPACE)
    runtime_class_name: str = ""
    isolation: Isolation = Isolation.NONE
    allowed_isolations: tuple[Isolation, ...] = tuple(Isolation)
    longest_grace_seconds: int = 3600
    webhook_configuration: str = CONFIGURATION
    certificates: ServerCertificateSettings = ServerCertificateSettings()
    drain_seconds: float = 10.0

    def __post_init__(self) -> None:
        """Refuse a negative number, and a default that no pod may choose."""
        if self.isolation not in self.allowed_isolations:
            raise ValueError(
                f"isolation {self.isolation} is not among allowed_isolations: "
                f"{', '.join(self.allowed_isolations) or 'an empty list'}"
            )
        if self.longest_grace_seconds < 0:
            raise ValueError(f"longest_grace_seconds is {self.longest_grace_seconds}: it must be 0 or more")
