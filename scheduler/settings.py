"""What an administrator may decide about the scheduler."""

import ipaddress

import msgspec

from cluster.election import ElectionSettings


class KubeSchedulerSettings(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """In extender mode: how the kube-schedulers say which of them leads.

    Attributes:
        lease_namespace: of their Lease.
        lease_name: its name; empty where there is one kube-scheduler only, without leader election.
        identity: what comes before `_` in the identity of the kube-scheduler beside us; empty means our host's name,
            which is the same for two containers of one pod.
    """

    lease_namespace: str = "kube-system"
    lease_name: str = "kube-scheduler"
    identity: str = ""


class ServingSettings(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """In extender mode: TLS, and who may call `/filter`, `/prioritize` and `/bind` from elsewhere.

    Attributes:
        certificate_file: the server's certificate, PEM; read again when it changes. Empty serves without TLS.
        key_file: its key.
        client_ca_file: who calls with a certificate of these authorities may.
        client_names: common names of such certificates; empty means any.
        users: usernames that may call with a bearer token, which the API server reviews.
        groups: the same by group.
        webhook: whether admission is served here, too, at `/webhook` and `/mutate`.
        largest_body_mib: larger requests are refused. 5,000 whole nodes have about 50 MiB.
    """

    certificate_file: str = ""
    key_file: str = ""
    client_ca_file: str = ""
    client_names: tuple[str, ...] = ()
    users: tuple[str, ...] = ()
    groups: tuple[str, ...] = ()
    webhook: bool = False
    largest_body_mib: int = 64

    def __post_init__(self) -> None:
        """Refuse halves."""
        if bool(self.certificate_file) != bool(self.key_file):
            raise ValueError("certificate_file and key_file go together: set both, or neither")
        if not self.certificate_file and (self.client_ca_file or self.webhook):
            raise ValueError("client_ca_file and webhook need TLS: set certificate_file and key_file")
        if self.client_names and not self.client_ca_file:
            raise ValueError("client_names needs client_ca_file")
        if self.largest_body_mib < 1:
            raise ValueError(f"largest_body_mib is {self.largest_body_mib}: it must be at least 1")

    @property
    def knows_callers(self) -> bool:
        """Whether a caller has to prove who he is."""
        return bool(self.client_ca_file or self.users or self.groups)


class SchedulerSettings(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """The scheduler's section of the configuration file.

    Attributes:
        extender: whether a kube-scheduler asks, by HTTP, instead of our own loop deciding.
        host: where HTTP (health, metrics, in extender mode the verbs) listens; loopback unless said otherwise.
        port: its port.
        probe_host: where health and metrics listen besides, without TLS; empty means every address.
        probe_port: their port; 0 means there is no such listener.
        serving: TLS and callers, in extender mode.
        kube_scheduler: which replica leads, in extender mode.
        aliases: schedulerNames besides `tranche` whose pods are ours.
        concurrent_binds: Bindings of the loop under way at once.
        request_timeout_seconds: the server-side time limit of a Binding.
        recount_seconds: how often the ledger is held against a recount; what diverges is logged and counted.
        relist_seconds: how often the whole state is read again, whatever the watches say.
        first_backoff_seconds: the pause after a pod's first failed attempt; it doubles.
        longest_backoff_seconds: the longest such pause.
        mig_wish_seconds: how long an agent has to make a MIG instance; nothing is asked of its card for as long again.
        election: who leads, and for how long without proof.
        drain_seconds: how long a process that is told to end waits for Bindings and events under way.
    """

    extender: bool = False
    host: str = "127.0.0.1"
    port: int = 8444
    probe_host: str = ""
    probe_port: int = 0
    serving: ServingSettings = ServingSettings()
    kube_scheduler: KubeSchedulerSettings = KubeSchedulerSettings()
    aliases: tuple[str, ...] = ()
    concurrent_binds: int = 64
    request_timeout_seconds: float = 10.0
    recount_seconds: float = 600.0
    relist_seconds: float = 600.0
    first_backoff_seconds: float = 0.2
    longest_backoff_seconds: float = 5.0
    mig_wish_seconds: float = 120.0
    election: ElectionSettings = ElectionSettings()
    drain_seconds: float = 10.0

    @property
    def is_private(self) -> bool:
        """Whether nobody but this host, or who has proven himself over TLS, can ask."""
        return _is_loopback(self.host) or bool(self.serving.certificate_file and self.serving.knows_callers)

    def __post_init__(self) -> None:
        """Refuse an open door: who may call `/bind` gives out cards."""
        serving = self.serving
        if self.extender and not _is_loopback(self.host):
            if not serving.certificate_file:
                raise ValueError(
                    f"in extender mode host {self.host!r} is reachable from elsewhere: set serving.certificate_file and"
                    " serving.key_file, and who may call, or listen on 127.0.0.1"
                )
            if not serving.knows_callers:
                raise ValueError(
                    f"in extender mode host {self.host!r} is reachable from elsewhere, and anybody could call: set"
                    " serving.client_ca_file, or serving.users or serving.groups, or listen on 127.0.0.1"
                )


def _is_loopback(host: str) -> bool:
    if host == "localhost":
        return True
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return False
