"""Client authentication: the credentials that a kubeconfig's user has."""

import base64
import json
import os
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any, Final

import msgspec

from cli.errors import CommandError, MissingPackageError
from cli.kube.kubeconfig import Overrides, Plugin, ResolvedContext, User

_PLUGIN_SECONDS: Final = 120.0


class Credentials(msgspec.Struct, frozen=True):
    """The headers to send, and the client certificate with its key in PEM, or empty strings."""

    headers: dict[str, str]
    certificate: str = ""
    key: str = ""


class _Status(msgspec.Struct, rename="camel"):
    token: str = ""
    client_certificate_data: str = ""
    client_key_data: str = ""


class _ExecCredential(msgspec.Struct):
    status: _Status


def of(chosen: ResolvedContext, flags: Overrides) -> Credentials:
    """Return the credentials of the chosen user.

    Raises:
        CommandError: a file cannot be read, or a credential plugin fails.
    """
    if flags.token:
        return Credentials(_bearer(flags.token))
    user, label = chosen.user, f"kubeconfig, user {chosen.username}"
    certificate = pem(user.client_certificate_data, user.client_certificate, f"{label}, client-certificate")
    key = pem(user.client_key_data, user.client_key, f"{label}, client-key")
    token = _token(user, label)
    if token:
        return Credentials(_bearer(token), certificate, key)
    if user.username:
        basic = base64.b64encode(f"{user.username}:{user.password}".encode()).decode()
        return Credentials({"Authorization": f"Basic {basic}"}, certificate, key)
    if user.exec is not None:
        status = _run(user.exec, chosen, label)
        headers = _bearer(status.token) if status.token else {}
        return Credentials(headers, status.client_certificate_data or certificate, status.client_key_data or key)
    if user.auth_provider is not None:
        return Credentials(_of_auth_provider(flags, label), certificate, key)
    return Credentials({}, certificate, key)


def pem(data: str, path: str, label: str) -> str:
    """Return the PEM text of `data`, in base64, or of a file, or an empty string if neither is given.

    Raises:
        CommandError: it cannot be read; `label` names the field.
    """
    if data:
        try:
            return base64.b64decode(data, validate=True).decode()
        except ValueError:
            raise CommandError(
                f"{label}-data is not a PEM text in base64; fetch the kubeconfig from the cluster again"
            ) from None
    return _read(path, label) if path else ""


def _bearer(token: str) -> dict[str, str]:
    return {"Authorization": f"Bearer {token}"}


def _token(user: User, label: str) -> str:
    """Return the token; a token file wins, because its token is renewed."""
    if user.token_file:
        return _read(user.token_file, f"{label}, tokenFile").strip()
    return user.token


def _read(path: str, label: str) -> str:
    try:
        return Path(path).read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        why = getattr(error, "strerror", None) or "it is not text in UTF-8"
        raise CommandError(
            f"{label}: {path} cannot be read: {why}; fetch the kubeconfig from the cluster again"
        ) from None


def _run(plugin: Plugin, chosen: ResolvedContext, label: str) -> _Status:
    """Run a credential plugin by client-go's protocol; the user sees its standard error."""
    spec: dict[str, Any] = {"interactive": sys.stdin.isatty()}
    if plugin.provide_cluster_info:
        spec["cluster"] = msgspec.to_builtins(chosen.cluster)
    info = {"apiVersion": plugin.api_version, "kind": "ExecCredential", "spec": spec}
    environment = os.environ | {each.name: each.value for each in plugin.env or ()}
    environment["KUBERNETES_EXEC_INFO"] = json.dumps(info)
    label = f"{label}: credential plugin {plugin.command}"
    try:
        done = subprocess.run(
            # Looked up here, because Windows itself finds only .exe files on the PATH, and plugins can be .cmd files.
            [shutil.which(plugin.command) or plugin.command, *(plugin.args or ())],
            env=environment,
            stdout=subprocess.PIPE,
            timeout=_PLUGIN_SECONDS,
            check=False,
        )
    except subprocess.TimeoutExpired:
        raise CommandError(f"{label} did not finish within {_PLUGIN_SECONDS:g} s") from None
    except OSError as error:
        hint = plugin.install_hint.strip().replace("\n", " ") or "install it, or choose another --user"
        raise CommandError(f"{label} cannot be run: {error.strerror}; {hint}") from None
    if done.returncode:
        raise CommandError(f"{label} failed with code {done.returncode}; log in again, or choose another --user")
    try:
        return msgspec.json.decode(done.stdout, type=_ExecCredential).status
    except (msgspec.DecodeError, UnicodeDecodeError) as error:
        raise CommandError(f"{label} did not print an ExecCredential: {error}") from None


def _of_auth_provider(flags: Overrides, label: str) -> dict[str, str]:
    """Return the headers of an auth-provider, which kubectl has deprecated, by the library that still supports it."""
    import asyncio  # noqa: PLC0415 -- slow to load, and few users have an auth-provider

    from cluster.errors import ClusterError  # noqa: PLC0415 -- slow to load

    try:
        from cluster.connect import connect  # noqa: PLC0415 -- slow to load
    except ModuleNotFoundError as error:
        raise MissingPackageError(error) from None

    async def headers() -> dict[str, str]:
        async with connect(program="kubectl-gpu", kubeconfig=flags.kubeconfig, context=flags.context) as connection:
            return await connection.headers()

    if flags.user:
        raise CommandError(f"{label} has an auth-provider, which --user cannot choose: choose its --context instead")
    try:
        return asyncio.run(headers())
    except ClusterError as error:
        raise CommandError(f"{label}: {error}") from None
    except Exception as error:  # noqa: BLE001 -- the library passes on every error of an identity provider
        raise CommandError(f"{label}, auth-provider: {error}; use an exec credential plugin instead") from None
