"""How the scheduler serves its API: TLS, and who may call."""

import msgspec


class ServingSettings(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """TLS, and the callers that may use the API and, in extender mode, `/filter` and the other verbs.

    Attributes:
        certificate_file: the server's certificate in PEM; it is reloaded when the file changes. Empty serves without
            TLS.
        key_file: the key of the certificate.
        client_ca_file: the authorities, in PEM, whose client certificates are accepted.
        client_names: the common names of accepted client certificates; empty accepts any name.
        users: the users that are accepted with a bearer token, which the API server reviews.
        groups: the groups whose users are accepted with a bearer token.
        webhook: in extender mode, whether admission is served on this port too, at `/webhook` and `/mutate`.
        largest_body_mib: the limit for request bodies. 5,000 complete Node objects have about 50 MiB.
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
        """Refuse incomplete combinations."""
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
        """Whether callers must authenticate."""
        return bool(self.client_ca_file or self.users or self.groups)


class NamespaceApiSettings(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """The API for users who have rights in one namespace: served with TLS to callers with a bearer token.

    Attributes:
        host: the address to listen on; empty means every address.
        port: the port to listen on; 0 disables this API.
        certificate_file: the server's certificate in PEM; it is reloaded when the file changes. Empty serves a
            certificate that the process issues itself, for clients that do not verify it: the API server's proxy.
        key_file: the key of the certificate.
    """

    host: str = ""
    port: int = 0
    certificate_file: str = ""
    key_file: str = ""

    def __post_init__(self) -> None:
        """Refuse a certificate without its key."""
        if bool(self.certificate_file) != bool(self.key_file):
            raise ValueError("certificate_file and key_file go together: set both, or neither")
