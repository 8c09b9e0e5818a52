"""How to reach an API server: address, TLS, proxy and credentials."""

import os
import ssl
import tempfile
from pathlib import Path
from typing import Any, Final

import msgspec

from cli.errors import CommandError
from cli.kube import credentials, kubeconfig
from cli.kube.credentials import Credentials
from cli.kube.kubeconfig import Cluster, Overrides, ResolvedContext, User
from cluster import proxy

_BEARER: Final = "Bearer "
_IMPERSONATE: Final = "Impersonate-User"
_MOUNT: Final = Path("/var/run/secrets/kubernetes.io/serviceaccount")


class Access(msgspec.Struct, frozen=True):
    """How to reach an API server.

    Attributes:
        server: the base URL, without a trailing slash.
        tls: None if the URL is plain HTTP.
        proxy: the URL of an HTTP proxy, or empty.
        headers: the headers that authenticate the user.
        namespace: the default namespace.
        context: the name of the context, for messages; empty inside a pod.
    """

    server: str
    tls: ssl.SSLContext | None
    proxy: str
    headers: dict[str, str]
    namespace: str
    context: str

    @property
    def token(self) -> str:
        """The bearer token, or an empty string if the credentials have none."""
        header = self.headers.get("Authorization", "")
        return header.removeprefix(_BEARER) if header.startswith(_BEARER) else ""

    @property
    def impersonates(self) -> bool:
        """Whether requests are made as another user."""
        return _IMPERSONATE in self.headers


class _Tls(ssl.SSLContext):
    """A context that verifies the server's certificate for `tls-server-name` instead of the URL's host."""

    server_name: str = ""

    def wrap_socket(self, *arguments: Any, **options: Any) -> ssl.SSLSocket:
        """Wrap a socket for that name."""
        return super().wrap_socket(*arguments, **self._renamed(options))

    def wrap_bio(self, *arguments: Any, **options: Any) -> ssl.SSLObject:
        """Wrap buffers for that name, as asyncio does."""
        return super().wrap_bio(*arguments, **self._renamed(options))

    def _renamed(self, options: dict[str, Any]) -> dict[str, Any]:
        return {**options, "server_hostname": self.server_name} if self.server_name else options


def access(flags: Overrides) -> Access:
    """Return the access that flags and kubeconfig files choose or, inside a pod, that of its ServiceAccount.

    Raises:
        CommandError: no cluster is configured, or the configuration cannot be read.
    """
    chosen = kubeconfig.read(flags) or _in_cluster()
    if not chosen.cluster.server.startswith(("https://", "http://")):
        raise CommandError(
            f"kubeconfig, context {chosen.context}: server {chosen.cluster.server!r} is not an https:// URL;"
            " choose another --context"
        )
    presented = credentials.of(chosen, flags)
    headers = dict(presented.headers)
    if flags.impersonate:
        headers[_IMPERSONATE] = flags.impersonate
    return Access(
        server=chosen.cluster.server,
        tls=_tls(chosen, presented) if chosen.cluster.server.startswith("https://") else None,
        proxy=chosen.cluster.proxy_url or proxy.of_environment(chosen.cluster.server),
        headers=headers,
        namespace=chosen.namespace or "default",
        context=chosen.context,
    )


def direct(url: str) -> Access:
    """Return the access to a server that is not an API server, verified by the system's authorities or SSL_CERT_FILE.

    Raises:
        CommandError: `url` is not an https:// URL.
    """
    if not url.startswith("https://"):
        raise CommandError(f"--scheduler-url {url!r} is not an https:// URL; the token is sent only with encryption")
    tls = ssl.create_default_context()
    return Access(url.rstrip("/"), tls, proxy.of_environment(url), {}, namespace="", context="")


def _in_cluster() -> ResolvedContext:
    host, port = os.environ.get("KUBERNETES_SERVICE_HOST", ""), os.environ.get("KUBERNETES_SERVICE_PORT", "443")
    if not host:
        raise CommandError(
            "no cluster is configured: ~/.kube/config does not exist; name a kubeconfig with --kubeconfig or KUBECONFIG"
        )
    host = f"[{host}]" if ":" in host else host
    namespace = _MOUNT / "namespace"
    return ResolvedContext(
        Cluster(server=f"https://{host}:{port}", certificate_authority=str(_MOUNT / "ca.crt")),
        User(token_file=str(_MOUNT / "token")),
        namespace.read_text().strip() if namespace.exists() else "",
        context="",
        username="of the pod's ServiceAccount",
    )


def _tls(chosen: ResolvedContext, presented: Credentials) -> ssl.SSLContext:
    label = f"kubeconfig, context {chosen.context}"
    cluster = chosen.cluster
    tls = _Tls(ssl.PROTOCOL_TLS_CLIENT)
    tls.server_name = cluster.tls_server_name
    authority = credentials.pem(
        cluster.certificate_authority_data, cluster.certificate_authority, f"{label}, certificate-authority"
    )
    try:
        if cluster.insecure_skip_tls_verify:
            tls.check_hostname = False
            tls.verify_mode = ssl.CERT_NONE
        elif authority:
            tls.load_verify_locations(cadata=authority)
        else:
            tls.load_default_certs()
        if presented.certificate:
            _load_certificate(tls, presented)
    except (ssl.SSLError, ValueError) as error:
        raise CommandError(
            f"{label}: its certificates cannot be used: {error}; fetch the kubeconfig from the cluster again"
        ) from None
    return tls


def _load_certificate(tls: ssl.SSLContext, presented: Credentials) -> None:
    """Load the client's certificate from a short-lived file, because OpenSSL reads only files.

    Its folder is private. The file is closed first: Windows does not open a file twice.
    """
    with tempfile.TemporaryDirectory(prefix="kubectl-gpu-") as folder:
        file = Path(folder) / "client.pem"
        file.write_text(f"{presented.certificate}\n{presented.key}", encoding="ascii")
        tls.load_cert_chain(file)
