"""Which cluster is meant and as whom: kubeconfig files as kubectl reads and merges them.

The library that every process of ours uses for this takes longer to load than a person likes to wait.
"""

import os
from pathlib import Path
from typing import Any, Final, TypeVar

import msgspec
import yaml

from cli.errors import CommandError

_HOME: Final = "~/.kube/config"
_DEEPEST: Final = 100
_Loader = getattr(yaml, "CSafeLoader", yaml.SafeLoader)


class Wanted(msgspec.Struct, frozen=True):
    """What the flags say; empty means what the files say.

    Attributes:
        kubeconfig: the only file to read.
        context: the name of a context.
        cluster: the name of a cluster, instead of the context's.
        user: the name of a user, instead of the context's.
        impersonate: whom to act as.
    """

    kubeconfig: str = ""
    context: str = ""
    cluster: str = ""
    user: str = ""
    impersonate: str = ""


class Cluster(msgspec.Struct, frozen=True, rename="kebab"):
    """Where an API server is and how it proves itself; file names are whole paths."""

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
    """A command that answers credentials."""

    command: str
    api_version: str = "client.authentication.k8s.io/v1"
    args: list[str] | None = None
    env: list[Variable] | None = None
    install_hint: str = ""
    provide_cluster_info: bool = False


class User(msgspec.Struct, frozen=True, rename="kebab"):
    """How somebody proves who they are; file names are whole paths."""

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


class Chosen(msgspec.Struct, frozen=True):
    """What a context stands for; `context` and `username` are the names in the file, for messages."""

    cluster: Cluster
    user: User
    namespace: str
    context: str
    username: str


class _Files(msgspec.Struct):
    """All files as one: of two entries with one name the first counts, with the folder that its paths start from."""

    clusters: dict[str, tuple[Any, Path]] = {}
    users: dict[str, tuple[Any, Path]] = {}
    contexts: dict[str, tuple[Any, Path]] = {}
    current: str = ""


S = TypeVar("S", bound=msgspec.Struct)


def paths(wanted: Wanted) -> list[Path]:
    """Answer the files to read that exist; the one that a flag names must.

    Raises:
        CommandError: it does not, or none does of those that $KUBECONFIG names.
    """
    named = wanted.kubeconfig or os.environ.get("KUBECONFIG", "")
    places = [named] if wanted.kubeconfig else (named or _HOME).split(os.pathsep)
    found = [path for part in places if part and (path := Path(part).expanduser()).is_file()]
    if named and not found:
        raise CommandError(f"kubeconfig {named} does not exist; name one with --kubeconfig or KUBECONFIG")
    return found


def read(wanted: Wanted) -> Chosen | None:
    """Answer what the files and flags choose; None where there is no file.

    Raises:
        CommandError: a file cannot be read, or what is chosen is not in it.
    """
    files = _Files()
    places = paths(wanted)
    for path in places:
        _merge(files, path)
    if not places:
        return None
    spoken = "kubeconfig " + os.pathsep.join(map(str, places))
    context = wanted.context or files.current
    if not context and not wanted.cluster:
        raise CommandError(f"{spoken} has no current-context; name one with --context: {_known(files.contexts)}")
    told = _Context()
    if context:
        told, _ = _entry(files.contexts, context, _Context, what="context", spoken=spoken)
    cluster, folder = _entry(files.clusters, wanted.cluster or told.cluster, Cluster, what="cluster", spoken=spoken)
    cluster = msgspec.structs.replace(
        cluster, certificate_authority=_whole(cluster.certificate_authority, folder), server=cluster.server.rstrip("/")
    )
    username, user = wanted.user or told.user, User()
    if username:
        user, folder = _entry(files.users, username, User, what="user", spoken=spoken)
        user = msgspec.structs.replace(
            user,
            client_certificate=_whole(user.client_certificate, folder),
            client_key=_whole(user.client_key, folder),
            token_file=_whole(user.token_file, folder),
        )
    return Chosen(cluster, user, told.namespace, context, username)


def contexts(wanted: Wanted) -> list[str]:
    """Answer the names of all contexts."""
    files = _Files()
    for path in paths(wanted):
        _merge(files, path)
    return sorted(files.contexts)


def _merge(files: _Files, path: Path) -> None:
    try:
        content = _loaded(path.read_text(encoding="utf-8"))
    except OSError as error:
        raise CommandError(f"kubeconfig {path} cannot be read: {error.strerror}; choose another --kubeconfig") from None
    except (yaml.YAMLError, ValueError) as error:
        told = " ".join(str(error).split())
        raise CommandError(f"kubeconfig {path} is no YAML: {told}; choose another --kubeconfig") from None
    if content is None:
        return
    if not isinstance(content, dict):
        raise CommandError(f"kubeconfig {path} is no mapping but a {type(content).__name__}; choose another one")
    files.current = files.current or str(content.get("current-context") or "")
    for known, plural, kind in (
        (files.clusters, "clusters", "cluster"),
        (files.users, "users", "user"),
        (files.contexts, "contexts", "context"),
    ):
        entries = content.get(plural) or []
        if not isinstance(entries, list):
            raise CommandError(f"kubeconfig {path}, {plural}: it is no list but a {type(entries).__name__}")
        for entry in entries:
            if not isinstance(entry, dict) or not isinstance(entry.get("name"), str):
                raise CommandError(f"kubeconfig {path}, {plural}: an entry is no mapping with a name: {entry!r:.80}")
            known.setdefault(entry["name"], (entry.get(kind) or {}, path.parent.absolute()))


def _loaded(text: str) -> Any:
    """Read YAML; what is nested deeper than any kubeconfig is refused, before the fast loader falls down its stack."""
    depth = 0
    for event in yaml.parse(text, Loader=_Loader):
        depth += isinstance(event, yaml.CollectionStartEvent) - isinstance(event, yaml.CollectionEndEvent)
        if depth > _DEEPEST:
            raise yaml.YAMLError(f"it is nested deeper than {_DEEPEST} levels")
    return yaml.load(text, Loader=_Loader)  # noqa: S506 -- a safe one


def _entry(known: dict[str, tuple[Any, Path]], name: str, kind: type[S], *, what: str, spoken: str) -> tuple[S, Path]:
    if name not in known:
        raise CommandError(f"{spoken} has no {what} {name!r}; it has {_known(known)}; choose one with --{what}")
    content, folder = known[name]
    kept = {key: value for key, value in content.items() if value is not None} if isinstance(content, dict) else content
    try:
        return msgspec.convert(kept, kind), folder
    except msgspec.ValidationError as error:
        raise CommandError(f"{spoken}, {what} {name}: {error}") from None


def _known(entries: dict[str, tuple[Any, Path]]) -> str:
    return ", ".join(sorted(entries)) or "none"


def _whole(name: str, folder: Path) -> str:
    return str(folder / name) if name else ""
