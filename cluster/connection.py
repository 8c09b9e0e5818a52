"""How a process reaches and proves itself to the API server.

`kubernetes.aio` reads kubeconfig files and the in-cluster mount, runs credential plugins and refreshes tokens; the
requests themselves go over our own aiohttp session, so that a hot path decodes just the fields it reads.
"""

import asyncio
import os
import ssl
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager, suppress
from functools import partial
from pathlib import Path

import aiohttp
from kubernetes.aio import config
from kubernetes.aio.client import Configuration

from cluster import proxy
from cluster.errors import ClusterError

_CONCURRENT_REQUESTS = 128
_IN_CLUSTER = "KUBERNETES_SERVICE_HOST"
_MOUNTED_NAMESPACE = Path("/var/run/secrets/kubernetes.io/serviceaccount/namespace")


class Connection:
    """An authenticated session with one API server."""

    def __init__(
        self,
        *,
        session: aiohttp.ClientSession,
        server: str,
        headers: Callable[[], Awaitable[dict[str, str]]],
        namespace: str,
    ) -> None:
        self.session = session
        self.server = server
        """The API server's base URL, without a trailing slash."""
        self.headers = headers
        """Answers the headers that prove who we are; raises ClusterError where the proof cannot be had."""
        self.namespace = namespace
        """Where an object is meant to be when nobody says otherwise: the context's namespace, or the pod's own."""


@asynccontextmanager
async def connect(*, kubeconfig: str = "", context: str = "") -> AsyncIterator[Connection]:
    """Open a session: `kubeconfig` if given, else `$KUBECONFIG`, else the in-cluster mount, else `~/.kube/config`.

    Raises:
        ClusterError: there is no usable configuration, or what it names cannot be read.
    """
    configuration = Configuration()
    refresher: asyncio.Task[None] | None = None
    try:
        if not kubeconfig and "KUBECONFIG" not in os.environ and _IN_CLUSTER in os.environ:
            config.load_incluster_config(client_configuration=configuration)
            namespace = _mounted_namespace()
        else:
            path = _existing(kubeconfig or os.environ.get("KUBECONFIG") or str(Path.home() / ".kube" / "config"))
            loader = await config.load_kube_config(
                config_file=path, context=context or None, client_configuration=configuration, persist_config=False
            )
            refresher = asyncio.create_task(config.refresh_token(loader, configuration))
            contexts, current = config.list_kube_config_contexts(path)
            chosen = next((each for each in contexts if each["name"] == context), current)
            namespace = chosen["context"].get("namespace", "")
        tls = _tls(configuration)
    except (config.ConfigException, OSError, ssl.SSLError) as error:
        raise ClusterError(
            f"no usable Kubernetes configuration: {error}; name one with --kubeconfig or KUBECONFIG"
        ) from error
    server = str(configuration.host).rstrip("/")
    # Asked once, not by aiohttp's trust_env: that looks for a netrc file and a proxy with every request, in threads.
    proxied = configuration.proxy or proxy.of_environment(server)
    connector = aiohttp.TCPConnector(limit=_CONCURRENT_REQUESTS, ssl=tls)
    try:
        async with aiohttp.ClientSession(connector=connector, auto_decompress=True, proxy=proxied or None) as session:
            yield Connection(
                session=session,
                server=server,
                headers=partial(_headers, configuration),
                namespace=namespace.strip() or "default",
            )
    finally:
        if refresher is not None:
            refresher.cancel()
            with suppress(asyncio.CancelledError):
                await refresher


async def _headers(configuration: Configuration) -> dict[str, str]:
    """Answer the headers that prove who we are; a token file that was rotated is read again."""
    try:
        settings = await configuration.auth_settings()
    except (config.ConfigException, OSError) as error:
        raise ClusterError(f"the credentials for {configuration.host} cannot be read: {error}") from error
    return {entry["key"]: entry["value"] for entry in settings.values()}


def _existing(path: str) -> str:
    """Answer `path`, one file or several as kubectl merges them, if there is any of them."""
    if not any(Path(part).exists() for part in path.split(os.pathsep)):
        raise ClusterError(f"kubeconfig {path} does not exist; name one with --kubeconfig or KUBECONFIG")
    return path


def _mounted_namespace() -> str:
    return _MOUNTED_NAMESPACE.read_text() if _MOUNTED_NAMESPACE.exists() else ""


def _tls(configuration: Configuration) -> ssl.SSLContext:
    tls = ssl.create_default_context(cafile=configuration.ssl_ca_cert, cadata=configuration.ca_cert_data)
    if configuration.cert_file:
        tls.load_cert_chain(configuration.cert_file, configuration.key_file)
    if not configuration.verify_ssl:
        tls.check_hostname = False
        tls.verify_mode = ssl.CERT_NONE
    return tls
