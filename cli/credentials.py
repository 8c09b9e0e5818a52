"""How a person proves who they are to an API server: what a kubeconfig's user stands for."""

import base64
import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any, Final

import msgspec

from cli.errors import CommandError
from cli.kubeconfig import Chosen, Plugin, User, Wanted

_PLUGIN_SECONDS: Final = 120.0


class Proof(msgspec.Struct, frozen=True):
    """Headers to send, and the certificate to show: PEM with its key, empty where there is none."""

    headers: dict[str, str]
    certificate: str = ""
    key: str = ""


class _Answer(msgspec.Struct, rename="camel"):
    token: str = ""
    client_certificate_data: str = ""
    client_key_data: str = ""


class _ExecCredential(msgspec.Struct):
    status: _Answer


def of(chosen: Chosen, wanted: Wanted) -> Proof:
    """Answer how to prove to be the chosen user.

    Raises:
        CommandError: a file cannot be read, or a credential plugin fails.
    """
    user, spoken = chosen.user, f"kubeconfig, user {chosen.username}"
    certificate = pem(user.client_certificate_data, user.client_certificate, f"{spoken}, client-certificate")
    key = pem(user.client_key_data, user.client_key, f"{spoken}, client-key")
    token = _token(user, spoken)
    if token:
        return Proof(_bearer(token), certificate, key)
    if user.username:
        basic = base64.b64encode(f"{user.username}:{user.password}".encode()).decode()
        return Proof({"Authorization": f"Basic {basic}"}, certificate, key)
    if user.exec is not None:
        answer = _run(user.exec, chosen, spoken)
        headers = _bearer(answer.token) if answer.token else {}
        return Proof(headers, answer.client_certificate_data or certificate, answer.client_key_data or key)
    if user.auth_provider is not None:
        return Proof(_of_auth_provider(wanted, spoken), certificate, key)
    return Proof({}, certificate, key)


def pem(data: str, path: str, spoken: str) -> str:
    """Answer the PEM text of `data`, in base64, or of a file; empty where there is neither.

    Raises:
        CommandError: it cannot be read; `spoken` says what it is.
    """
    if data:
        try:
            return base64.b64decode(data, validate=True).decode()
        except ValueError:
            raise CommandError(f"{spoken}-data is no base64 of a PEM text; fetch the kubeconfig anew") from None
    return _read(path, spoken) if path else ""


def _bearer(token: str) -> dict[str, str]:
    return {"Authorization": f"Bearer {token}"}


def _token(user: User, spoken: str) -> str:
    """Answer the token; that of a file counts, which is how it is renewed."""
    if user.token_file:
        return _read(user.token_file, f"{spoken}, tokenFile").strip()
    return user.token


def _read(path: str, spoken: str) -> str:
    try:
        return Path(path).read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        why = getattr(error, "strerror", None) or "no text"
        raise CommandError(f"{spoken}: {path} cannot be read: {why}; fetch the kubeconfig anew") from None


def _run(plugin: Plugin, chosen: Chosen, spoken: str) -> _Answer:
    """Run a credential plugin by client-go's protocol; what it says on standard error is for the person."""
    told: dict[str, Any] = {"interactive": sys.stdin.isatty()}
    if plugin.provide_cluster_info:
        told["cluster"] = msgspec.to_builtins(chosen.cluster)
    info = {"apiVersion": plugin.api_version, "kind": "ExecCredential", "spec": told}
    environment = os.environ | {each.name: each.value for each in plugin.env or ()}
    environment["KUBERNETES_EXEC_INFO"] = json.dumps(info)
    spoken = f"{spoken}: credential plugin {plugin.command}"
    try:
        done = subprocess.run(
            [plugin.command, *(plugin.args or ())],
            env=environment,
            stdout=subprocess.PIPE,
            timeout=_PLUGIN_SECONDS,
            check=False,
        )
    except subprocess.TimeoutExpired:
        raise CommandError(f"{spoken} did not answer within {_PLUGIN_SECONDS:g} s") from None
    except OSError as error:
        hint = plugin.install_hint.strip().replace("\n", " ") or "install it, or choose another --user"
        raise CommandError(f"{spoken} cannot be run: {error.strerror}; {hint}") from None
    if done.returncode:
        raise CommandError(f"{spoken} failed with code {done.returncode}; log in again, or choose another --user")
    try:
        return msgspec.json.decode(done.stdout, type=_ExecCredential).status
    except (msgspec.DecodeError, UnicodeDecodeError) as error:
        raise CommandError(f"{spoken} answered no ExecCredential: {error}") from None


def _of_auth_provider(wanted: Wanted, spoken: str) -> dict[str, str]:
    """Leave to the library what kubectl itself is leaving behind."""
    import asyncio  # noqa: PLC0415 -- few have such a user, and it takes long to load

    from cluster.connection import connect  # noqa: PLC0415 -- the same
    from cluster.errors import ClusterError  # noqa: PLC0415 -- the same

    async def headers() -> dict[str, str]:
        async with connect(kubeconfig=wanted.kubeconfig, context=wanted.context) as connection:
            return await connection.headers()

    if wanted.user:
        raise CommandError(f"{spoken} has an auth-provider, which --user cannot choose: name a --context with it")
    try:
        return asyncio.run(headers())
    except ClusterError as error:
        raise CommandError(f"{spoken}: {error}") from None
    except Exception as error:  # noqa: BLE001 -- the library lets through whatever an identity provider causes
        raise CommandError(f"{spoken}, auth-provider: {error}; use an exec credential plugin instead") from None
