"""Kubeconfig files, read and merged as kubectl does it: the chosen cluster and user.

The library that the processes use for this is too slow to load for a command.
"""

import os
import sys
from pathlib import Path
from typing import Any, Final, TypeVar

import msgspec
import yaml

from cli.errors import CommandError

_IN_HOME: Final = Path(".kube", "config")
_DEEPEST: Final = 100
_Loader = getattr(yaml, "CSafeLoader", yaml.SafeLoader)


class Overrides(msgspec.Struct, frozen=True):
    """The flags, which win over the files where they are not empty.

    Attributes:
        kubeconfig: the only file to read.
        context: the name of a context.
        cluster: the name of a cluster, instead of the context's.
        user: the name of a user, instead of the context's.
        impersonate: the user to act as.
        token: a bearer token, instead of the user's credentials.
    """

    kubeconfig: str = ""
    context: str = ""
    cluster: str = ""
    user: str = ""
    impersonate: str = ""
    token: str = ""


class Cluster(msgspec.Struct, frozen=True, rename="kebab"):
    """An API server: its address, and how it is verified. File names are absolute paths."""

    server: str = ""
    certificate_authority: str = ""
    certificate_authority_data: str = ""
    insecure_skip_tls_verify: bool = False
    tls_server_name: str = ""
    proxy_url: str = ""


class Variable(msgspec.Struct, frozen=True):
    """One entry of a credential plugin's environment."""

    name: str
    value: str = ""


class Plugin(msgspec.Struct, frozen=True, rename="camel"):
    """A credential plugin: a command that prints credentials."""

    command: str
    api_version: str = "client.authentication.k8s.io/v1"
    args: list[str] | None = None
    env: list[Variable] | None = None
    install_hint: str = ""
    provide_cluster_info: bool = False


class User(msgspec.Struct, frozen=True, rename="kebab"):
    """The credentials of a user. File names are absolute paths."""

    client_certificate: str = ""
    client_certificate_data: str = ""
    client_key: str = ""
    client_key_data: str = ""
    token: str = ""
    token_file: str = msgspec.field(default="", name="tokenFile")
    username: str = ""
    password: str = ""
    exec: Plugin | None = None
    auth_provider: dict[str, Any] | None = None


class _Context(msgspec.Struct, frozen=True):
    cluster: str = ""
    user: str = ""
    namespace: str = ""


class ResolvedContext(msgspec.Struct, frozen=True):
    """The cluster and user of a context; `context` and `username` are their names in the file, for messages."""

    cluster: Cluster
    user: User
    namespace: str
    context: str
    username: str


class _Files(msgspec.Struct):
    """All files, merged: the first entry with a name wins. Each entry has the folder from which its paths start."""

    clusters: dict[str, tuple[Any, Path]] = {}
    users: dict[str, tuple[Any, Path]] = {}
    contexts: dict[str, tuple[Any, Path]] = {}
    current: str = ""


S = TypeVar("S", bound=msgspec.Struct)


def paths(flags: Overrides) -> list[Path]:
    """Return the kubeconfig files that exist.

    Raises:
        CommandError: the file that the flag names, or every file that $KUBECONFIG names, is missing.
    """
    named = flags.kubeconfig or os.environ.get("KUBECONFIG", "")
    if not named:
        return [path for home in _homes() if (path := home / _IN_HOME).is_file()][:1]
    places = [named] if flags.kubeconfig else named.split(os.pathsep)
    found = [path for part in places if part and (path := Path(part).expanduser()).is_file()]
    if not found:
        raise CommandError(f"kubeconfig {named} does not exist; name one with --kubeconfig or KUBECONFIG")
    return found


def _homes() -> list[Path]:
    """Return the user's home; on Windows the folders that kubectl takes for it, in its order."""
    if sys.platform != "win32":
        return [Path.home()]
    drive = os.environ.get("HOMEDRIVE", "") + os.environ.get("HOMEPATH", "")
    return [Path(home) for home in (os.environ.get("HOME"), drive, os.environ.get("USERPROFILE")) if home]


def read(flags: Overrides) -> ResolvedContext | None:
    """Return the cluster and user that files and flags choose, or None if no file exists.

    Raises:
        CommandError: a file cannot be read, or lacks the chosen context, cluster or user.
    """
    files = _Files()
    places = paths(flags)
    for path in places:
        _merge(files, path)
    if not places:
        return None
    label = "kubeconfig " + os.pathsep.join(map(str, places))
    context = flags.context or files.current
    if not context and not flags.cluster:
        raise CommandError(
            f"{label} has no current-context; choose one of its contexts with --context: {_names(files.contexts)}"
        )
    chosen = _Context()
    if context:
        chosen, _ = _entry(files.contexts, context, _Context, what="context", label=label)
    cluster, folder = _entry(files.clusters, flags.cluster or chosen.cluster, Cluster, what="cluster", label=label)
    cluster = msgspec.structs.replace(
        cluster,
        certificate_authority=_absolute(cluster.certificate_authority, folder),
        server=cluster.server.rstrip("/"),
    )
    username, user = flags.user or chosen.user, User()
    if username:
        user, folder = _entry(files.users, username, User, what="user", label=label)
        user = msgspec.structs.replace(
            user,
            client_certificate=_absolute(user.client_certificate, folder),
            client_key=_absolute(user.client_key, folder),
            token_file=_absolute(user.token_file, folder),
        )
    return ResolvedContext(cluster, user, chosen.namespace, context, username)


def contexts(flags: Overrides) -> list[str]:
    """Return the names of all contexts."""
    files = _Files()
    for path in paths(flags):
        _merge(files, path)
    return sorted(files.contexts)


def _merge(files: _Files, path: Path) -> None:
    try:
        content = _loaded(path.read_text(encoding="utf-8"))
    except OSError as error:
        raise CommandError(f"kubeconfig {path} cannot be read: {error.strerror}; choose another --kubeconfig") from None
    except (yaml.YAMLError, ValueError) as error:
        problem = " ".join(str(error).split())
        raise CommandError(f"kubeconfig {path} is not YAML: {problem}; choose another --kubeconfig") from None
    if content is None:
        return
    if not isinstance(content, dict):
        raise CommandError(
            f"kubeconfig {path} is not a mapping but a {type(content).__name__}; choose another --kubeconfig"
        )
    files.current = files.current or str(content.get("current-context") or "")
    for merged, plural, kind in (
        (files.clusters, "clusters", "cluster"),
        (files.users, "users", "user"),
        (files.contexts, "contexts", "context"),
    ):
        entries = content.get(plural) or []
        if not isinstance(entries, list):
            raise CommandError(f"kubeconfig {path}, {plural}: it is not a list but a {type(entries).__name__}")
        for entry in entries:
            if not isinstance(entry, dict) or not isinstance(entry.get("name"), str):
                raise CommandError(f"kubeconfig {path}, {plural}: an entry is not a mapping with a name: {entry!r:.80}")
            merged.setdefault(entry["name"], (entry.get(kind) or {}, path.parent.absolute()))


def _loaded(text: str) -> Any:
    """Read YAML; refuse deep nesting first, because the fast loader would overflow its stack."""
    depth = 0
    for event in yaml.parse(text, Loader=_Loader):
        depth += isinstance(event, yaml.CollectionStartEvent) - isinstance(event, yaml.CollectionEndEvent)
        if depth > _DEEPEST:
            raise yaml.YAMLError(f"it is nested deeper than {_DEEPEST} levels")
    return yaml.load(text, Loader=_Loader)  # noqa: S506 -- a SafeLoader


def _entry(entries: dict[str, tuple[Any, Path]], name: str, kind: type[S], *, what: str, label: str) -> tuple[S, Path]:
    if name not in entries:
        raise CommandError(f"{label} has no {what} {name!r}; it has {_names(entries)}; choose one with --{what}")
    content, folder = entries[name]
    if isinstance(content, dict):
        content = {key: value for key, value in content.items() if value is not None}
    try:
        return msgspec.convert(content, kind), folder
    except msgspec.ValidationError as error:
        raise CommandError(f"{label}, {what} {name}: {error}") from None


def _names(entries: dict[str, tuple[Any, Path]]) -> str:
    return ", ".join(sorted(entries)) or "none"


def _absolute(name: str, folder: Path) -> str:
    return str(folder / name) if name else ""
