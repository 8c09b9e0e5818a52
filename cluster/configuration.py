"""The configuration of a process: one YAML file with one section per process; every key is also a flag.

An unknown key is an error, so that a typo never becomes a silent default. Flags override the file.
"""

import argparse
import sys
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, Generic, Literal, NoReturn, TypeVar, get_args, get_origin

import msgspec
import yaml

from allocation.settings import AllocationSettings
from cluster.logs import LogSettings

DEFAULT_PATH = "/etc/tranche/config.yaml"
SHARED = ("cluster", "log", "allocation")
SECTIONS = (*SHARED, "webhook", "scheduler", "agent", "certs")

S = TypeVar("S", bound=msgspec.Struct)


class ConfigurationError(Exception):
    """The file or a flag is invalid; the message names the key or the flag."""


class ClusterSettings(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """How to reach the API server; empty values mean kubectl's defaults, or in a pod its service account.

    Attributes:
        kubeconfig: the path of a kubeconfig file.
        context: the context in this file.
    """

    kubeconfig: str = ""
    context: str = ""


class Configuration(msgspec.Struct, Generic[S], frozen=True):
    """The configuration of a process: the shared sections, its own, and those of processes that it includes."""

    cluster: ClusterSettings
    allocation: AllocationSettings
    own: S
    others: Mapping[str, Any] = {}
    log: LogSettings = LogSettings()


class _Key(msgspec.Struct, frozen=True):
    """One key: its path in the file, its flag, its type."""

    path: tuple[str, ...]
    type: Any

    def flag(self, section: str) -> str:
        """Return the flag; its prefix is the section, except for `cluster` and the process's own."""
        parts = self.path[1:] if self.path[0] in (section, "cluster") else self.path
        return "--" + "-".join(parts).replace("_", "-")


def load(
    argv: Sequence[str] | None,
    *,
    section: str,
    settings: type[S],
    prog: str,
    description: str,
    others: Mapping[str, type[msgspec.Struct]] | None = None,
) -> Configuration[S]:
    """Read the file and the flags of a process; exit on `--help`, `--print-config` and invalid input."""
    types = _types(section, settings, others or {})
    parser = argparse.ArgumentParser(prog=prog, description=description)
    arguments = _arguments(parser, argv, types, section)
    try:
        parts = _parts(_read(arguments["config"]), arguments, types, section)
    except ConfigurationError as error:
        parser.error(str(error))
    if arguments["print_config"]:
        yaml.safe_dump(msgspec.to_builtins(parts), sys.stdout, sort_keys=False)
        sys.exit(0)
    return _configuration(parts, section)


def parse(
    text: str,
    *,
    source: str,
    flags: Sequence[str] = (),
    section: str,
    settings: type[S],
    others: Mapping[str, type[msgspec.Struct]] | None = None,
) -> Configuration[S]:
    """Return the configuration of a process with the file `text` and these `flags`; `--config` is ignored.

    Raises:
        ConfigurationError: a key or a flag is unknown or invalid; the message names `source`.
    """
    types = _types(section, settings, others or {})
    try:
        arguments = _arguments(_FailingParser(add_help=False), flags, types, section)
        return _configuration(_parts(_decode(text), arguments, types, section), section)
    except ConfigurationError as error:
        raise ConfigurationError(f"{source}: {error}") from None


class _FailingParser(argparse.ArgumentParser):
    """Raises an exception where `ArgumentParser` exits."""

    def error(self, message: str) -> NoReturn:
        """Raise ConfigurationError."""
        raise ConfigurationError(message)


def _types(section: str, settings: type[S], others: Mapping[str, type[msgspec.Struct]]) -> dict[str, Any]:
    return {
        "cluster": ClusterSettings,
        "log": LogSettings,
        "allocation": AllocationSettings,
        section: settings,
        **others,
    }


def _all_keys(types: Mapping[str, Any]) -> list[_Key]:
    return [key for name, kind in types.items() for key in _keys((name,), kind)]


def _arguments(
    parser: argparse.ArgumentParser, argv: Sequence[str] | None, types: Mapping[str, Any], section: str
) -> dict[str, Any]:
    parser.add_argument(
        "--config", metavar="FILE", help=f"YAML configuration file (default {DEFAULT_PATH}, if it exists)"
    )
    parser.add_argument("--print-config", action="store_true", help="print the resulting configuration and exit")
    for key in _all_keys(types):
        bare: dict[str, Any] = {"nargs": "?", "const": "true"} if key.type is bool else {}
        name = ".".join(key.path)
        parser.add_argument(key.flag(section), dest=name, metavar="VALUE", help=name, **bare)
    return vars(parser.parse_args(argv))


def _parts(
    tree: dict[str, Any], arguments: Mapping[str, Any], types: Mapping[str, Any], section: str
) -> dict[str, Any]:
    for key in _all_keys(types):
        _restore_words(tree, key)
        given = arguments[".".join(key.path)]
        if given is not None:
            _put(tree, key, given, section)
    return {name: _convert(tree.get(name) or {}, kind, name) for name, kind in types.items()}


def _configuration(parts: Mapping[str, Any], section: str) -> Configuration[Any]:
    return Configuration(
        cluster=parts["cluster"],
        log=parts["log"],
        allocation=parts["allocation"],
        own=parts[section],
        others={name: part for name, part in parts.items() if name not in (*SHARED, section)},
    )


def _keys(path: tuple[str, ...], kind: Any) -> Iterator[_Key]:
    for field in msgspec.structs.fields(kind):
        inner = (*path, field.encode_name)
        if isinstance(field.type, type) and issubclass(field.type, msgspec.Struct):
            yield from _keys(inner, field.type)
        else:
            yield _Key(inner, field.type)


def _read(path: str | None) -> dict[str, Any]:
    file = Path(path or DEFAULT_PATH)
    if path is None and not file.exists():
        return {}
    try:
        return _decode(file.read_text())
    except (OSError, UnicodeDecodeError, ConfigurationError) as error:
        raise ConfigurationError(f"{file}: {error}") from error


def _decode(text: str) -> dict[str, Any]:
    try:
        tree = yaml.safe_load(text)
    except yaml.YAMLError as error:
        raise ConfigurationError(" ".join(str(error).split())) from None
    if tree is None:
        return {}
    if not isinstance(tree, dict):
        raise ConfigurationError(f"must be a mapping of sections, but is a {type(tree).__name__}")
    unknown = sorted(str(name) for name in tree if name not in SECTIONS)
    if unknown:
        raise ConfigurationError(f"unknown section {', '.join(unknown)}; known: {', '.join(SECTIONS)}")
    return tree


def _put(tree: dict[str, Any], key: _Key, given: str, section: str) -> None:
    value: object = given
    origin = getattr(key.type, "__origin__", key.type)
    if origin in (tuple, list):
        value = [part for part in given.split(",") if part]
    try:
        value = msgspec.to_builtins(msgspec.convert(value, key.type, strict=False))
    except msgspec.ValidationError as error:
        raise ConfigurationError(f"{key.flag(section)} {given!r}: {error}") from None
    node = tree
    for part in key.path[:-1]:
        inner = node.get(part)
        node[part] = dict(inner) if isinstance(inner, Mapping) else {}
        node = node[part]
    node[key.path[-1]] = value


def _restore_words(tree: Mapping[str, Any], key: _Key) -> None:
    """Restore the words `off` and `on`, which YAML reads as booleans without quotes, for a key that holds words."""
    if get_origin(key.type) is not Literal:
        return
    node: Any = tree
    for part in key.path[:-1]:
        node = node.get(part) if isinstance(node, Mapping) else None
    if isinstance(node, dict):
        for word, value in (("off", False), ("on", True)):
            if node.get(key.path[-1]) is value and word in get_args(key.type):
                node[key.path[-1]] = word


def _convert(value: object, kind: type[S], section: str) -> S:
    try:
        return msgspec.convert(value, kind)
    except msgspec.ValidationError as error:
        keys = list(_keys((section,), kind))
        known = ", ".join(".".join(key.path) for key in keys)
        raise ConfigurationError(f"section {section}: {error}{_permitted(error, keys)}; known keys: {known}") from None


def _permitted(error: msgspec.ValidationError, keys: Iterable[_Key]) -> str:
    """Return which words the key that `error` names can hold, to be appended; empty for keys that hold other values."""
    for key in keys:
        if get_origin(key.type) is Literal and f"`$.{'.'.join(key.path[1:])}`" in str(error):
            return f", must be one of {', '.join(get_args(key.type))}"
    return ""
