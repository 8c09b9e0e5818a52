"""The way to one API server: its address, how it proves itself to us and we to it."""

import os
import ssl
import tempfile
from pathlib import Path
from typing import Any, Final

import msgspec

from cli import credentials, kubeconfig
from cli.credentials import Proof
from cli.errors import CommandError
from cli.kubeconfig import Chosen, Cluster, User, Wanted
from cluster import proxy

_MOUNT: Final = Path("/var/run/secrets/kubernetes.io/serviceaccount")


class Access(msgspec.Struct, frozen=True):
    """How to ask an API server.

    Attributes:
        server: its base URL, without a trailing slash.
        tls: None where the URL is plain HTTP.
        proxy: URL of the HTTP proxy on the way, empty where there is none.
        headers: what proves who asks.
        namespace: where an object is looked for when nobody says.
        context: the context's name, for messages; empty inside a pod.
    """

    server: str
    tls: ssl.SSLContext | None
    proxy: str
    headers: dict[str, str]
    namespace: str
    context: str


class _Tls(ssl.SSLContext):
    """A context that checks the server's certificate for another name than the URL's, as `tls-server-name` wants."""

    server_name: str = ""

    def wrap_socket(self, *arguments: Any, **options: Any) -> ssl.SSLSocket:
        """As its base does, for the other name."""
        return super().wrap_socket(*arguments, **self._renamed(options))

    def wrap_bio(self, *arguments: Any, **options: Any) -> ssl.SSLObject:
        """The same, for asyncio."""
        return super().wrap_bio(*arguments, **self._renamed(options))

    def _renamed(self, options: dict[str, Any]) -> dict[str, Any]:
        return {**options, "server_hostname": self.server_name} if self.server_name else options


def access(wanted: Wanted) -> Access:
    """Answer the way that flags, kubeconfig files or, inside a pod, its mount name.

    Raises:
        CommandError: there is none, or it cannot be read.
    """
    chosen = kubeconfig.read(wanted) or _in_cluster()
    if not chosen.cluster.server.startswith(("https://", "http://")):
        raise CommandError(
            f"kubeconfig, context {chosen.context}: server {chosen.cluster.server!r} is no https:// URL;"
            " choose another --context"
        )
    proof = credentials.of(chosen, wanted)
    headers = dict(proof.headers)
    if wanted.impersonate:
        headers["Impersonate-User"] = wanted.impersonate
    return Access(
        server=chosen.cluster.server,
        tls=_tls(chosen, proof) if chosen.cluster.server.startswith("https://") else None,
        proxy=chosen.cluster.proxy_url or proxy.of_environment(chosen.cluster.server),
        headers=headers,
        namespace=chosen.namespace or "default",
        context=chosen.context,
    )


def _in_cluster() -> Chosen:
    host, port = os.environ.get("KUBERNETES_SERVICE_HOST", ""), os.environ.get("KUBERNETES_SERVICE_PORT", "443")
    if not host:
        raise CommandError("no cluster is named: there is no ~/.kube/config; name one with --kubeconfig or KUBECONFIG")
    host = f"[{host}]" if ":" in host else host
    namespace = _MOUNT / "namespace"
    return Chosen(
        Cluster(server=f"https://{host}:{port}", certificate_authority=str(_MOUNT / "ca.crt")),
        User(token_file=str(_MOUNT / "token")),
        namespace.read_text().strip() if namespace.exists() else "",
        context="",
        username="of the pod",
    )


def _tls(chosen: Chosen, proof: Proof) -> ssl.SSLContext:
    spoken = f"kubeconfig, context {chosen.context}"
    cluster = chosen.cluster
    tls = _Tls(ssl.PROTOCOL_TLS_CLIENT)
    tls.server_name = cluster.tls_server_name
    authority = credentials.pem(
        cluster.certificate_authority_data, cluster.certificate_authority, f"{spoken}, certificate-authority"
    )
    try:
        if cluster.insecure_skip_tls_verify:
            tls.check_hostname = False
            tls.verify_mode = ssl.CERT_NONE
        elif authority:
            tls.load_verify_locations(cadata=authority)
        else:
            tls.load_default_certs()
        if proof.certificate:
            _show(tls, proof)
    except (ssl.SSLError, ValueError) as error:
        raise CommandError(f"{spoken}: its certificates cannot be used: {error}; fetch the kubeconfig anew") from None
    return tls


def _show(tls: ssl.SSLContext, proof: Proof) -> None:
    """Load the client's certificate, which OpenSSL takes from files only: a private one, briefly."""
    with tempfile.NamedTemporaryFile("w", prefix="kubectl-gpu-") as file:
        file.write(f"{proof.certificate}\n{proof.key}")
        file.flush()
        tls.load_cert_chain(file.name)
