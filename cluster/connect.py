"""Connects and authenticates a process to the API server.

`kubernetes.aio` reads kubeconfig files and the mounted service account, runs credential plugins and refreshes tokens.
Requests use a separate aiohttp session, so that hot paths decode just the fields that they read.
"""

import asyncio
import os
import ssl
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from functools import partial
from pathlib import Path

import aiohttp

from cluster import proxy
from cluster.asynchronous_client import Configuration, config
from cluster.connection import Connection
from cluster.errors import ClusterError
from cluster.sockets import Sockets
from cluster.version import own

_CONCURRENT_REQUESTS = 128
_IN_CLUSTER = "KUBERNETES_SERVICE_HOST"
_MOUNTED_NAMESPACE = Path("/var/run/secrets/kubernetes.io/serviceaccount/namespace")


@asynccontextmanager
async def connect(*, program: str, kubeconfig: str = "", context: str = "") -> AsyncIterator[Connection]:
    """Open a session with `kubeconfig`, `$KUBECONFIG`, the pod's service account or `~/.kube/config`, in this order.

    `program` is who is at work in the records of the API server: its audit log, and the managers of fields that are
    written without apply, which it takes from the part of the User-Agent before the slash.

    Raises:
        ClusterError: no configuration is usable, or a file that it names cannot be read.
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
            selected = next((each for each in contexts if each["name"] == context), current)
            namespace = selected["context"].get("namespace", "")
        tls, anonymous_tls = _tls(configuration), _tls(configuration, is_anonymous=True)
    except (config.ConfigException, OSError, ssl.SSLError) as error:
        raise ClusterError(
            f"no usable Kubernetes configuration: {error}; name one with --kubeconfig or KUBECONFIG"
        ) from error
    server = str(configuration.host).rstrip("/")
    # Determined once, without aiohttp's trust_env, which looks up a netrc file and a proxy in a thread per request.
    proxied = configuration.proxy or proxy.of_environment(server)
    sockets = Sockets()
    sender = {"User-Agent": f"{program}/{own().version}"}

    def session(context: ssl.SSLContext) -> aiohttp.ClientSession:
        connector = aiohttp.TCPConnector(limit=_CONCURRENT_REQUESTS, ssl=context, socket_factory=sockets.create)
        return aiohttp.ClientSession(connector=connector, headers=sender, proxy=proxied or None)

    try:
        async with session(tls) as identified, session(anonymous_tls) as anonymous:
            yield Connection(
                session=identified,
                server=server,
                headers=partial(_headers, configuration),
                namespace=namespace.strip() or "default",
                anonymous=anonymous,
            )
    finally:
        await sockets.cut()
        if refresher is not None:
            refresher.cancel()
            with suppress(asyncio.CancelledError):
                await refresher


async def _headers(configuration: Configuration) -> dict[str, str]:
    """Return the authentication headers; a rotated token file is read again."""
    try:
        settings = await configuration.auth_settings()
    except (config.ConfigException, OSError) as error:
        raise ClusterError(f"the credentials for {configuration.host} cannot be read: {error}") from error
    return {entry["key"]: entry["value"] for entry in settings.values()}


def _existing(path: str) -> str:
    """Return `path`, one file or a list that kubectl would merge, if at least one file exists."""
    if not any(Path(part).exists() for part in path.split(os.pathsep)):
        raise ClusterError(f"kubeconfig {path} does not exist; name one with --kubeconfig or KUBECONFIG")
    return path


def _mounted_namespace() -> str:
    return _MOUNTED_NAMESPACE.read_text() if _MOUNTED_NAMESPACE.exists() else ""


def _tls(configuration: Configuration, *, is_anonymous: bool = False) -> ssl.SSLContext:
    """Return the context of a session, without the client certificate if `is_anonymous`."""
    tls = ssl.create_default_context(cafile=configuration.ssl_ca_cert, cadata=configuration.ca_cert_data)
    if configuration.cert_file and not is_anonymous:
        tls.load_cert_chain(configuration.cert_file, configuration.key_file)
    if not configuration.verify_ssl:
        tls.check_hostname = False
        tls.verify_mode = ssl.CERT_NONE
    return tls
