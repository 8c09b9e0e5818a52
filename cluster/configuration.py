"""How a process learns its configuration: one YAML file, one section per process, every key also a flag.

A key that nobody knows is an error, so a typing mistake never becomes a silent default. Flags win over the file.
"""

import argparse
import sys
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, Generic, TypeVar

import msgspec
import yaml

from allocation.settings import AllocationSettings
from cluster.logs import LogSettings

DEFAULT_PATH = "/etc/tranche/config.yaml"
SHARED = ("cluster", "log", "allocation")
SECTIONS = (*SHARED, "webhook", "scheduler", "agent", "certs")

S = TypeVar("S", bound=msgspec.Struct)


class ConfigurationError(Exception):
    """The file or a flag holds what it may not hold; the message names it."""


class ClusterSettings(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """How to reach the API server; empty means what kubectl would do, or the in-cluster mount.

    Attributes:
        kubeconfig: path of a kubeconfig file.
        context: its context.
    """

    kubeconfig: str = ""
    context: str = ""


class Configuration(msgspec.Struct, Generic[S], frozen=True):
    """What a process was told: the shared sections, its own, and, by name, those of others whose work it does, too."""

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
        """Answer the flag: keys of the own section and of `cluster` bare, others with their section."""
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
    """Read the file and the flags of a process; ends the process for `--help`, `--print-config` and bad input."""
    others = others or {}
    types: dict[str, Any] = {
        "cluster": ClusterSettings,
        "log": LogSettings,
        "allocation": AllocationSettings,
        section: settings,
        **others,
    }
    keys = [key for name, kind in types.items() for key in _keys((name,), kind)]
    parser = argparse.ArgumentParser(prog=prog, description=description)
    parser.add_argument("--config", metavar="FILE", help=f"YAML configuration (default {DEFAULT_PATH}, if it exists)")
    parser.add_argument("--print-config", action="store_true", help="print the resulting configuration and exit")
    for key in keys:
        bare: dict[str, Any] = {"nargs": "?", "const": "true"} if key.type is bool else {}
        name = ".".join(key.path)
        parser.add_argument(key.flag(section), dest=name, metavar="VALUE", help=name, **bare)
    arguments = vars(parser.parse_args(argv))
    try:
        tree = _read(arguments["config"])
        for key in keys:
            given = arguments[".".join(key.path)]
            if given is not None:
                _put(tree, key, given, section)
        parts = {name: _convert(tree.get(name) or {}, kind, name) for name, kind in types.items()}
    except ConfigurationError as error:
        parser.error(str(error))
    if arguments["print_config"]:
        yaml.safe_dump(msgspec.to_builtins(parts), sys.stdout, sort_keys=False)
        sys.exit(0)
    return Configuration(
        cluster=parts["cluster"],
        log=parts["log"],
        allocation=parts["allocation"],
        own=parts[section],
        others={name: parts[name] for name in others},
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
        tree = yaml.safe_load(file.read_text())
    except (OSError, yaml.YAMLError) as error:
        raise ConfigurationError(f"{file}: {error}") from error
    if tree is None:
        return {}
    if not isinstance(tree, dict):
        raise ConfigurationError(f"{file}: must be a mapping of sections, holds a {type(tree).__name__}")
    unknown = sorted(str(name) for name in tree if name not in SECTIONS)
    if unknown:
        raise ConfigurationError(f"{file}: unknown section {', '.join(unknown)}; known: {', '.join(SECTIONS)}")
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


def _convert(value: object, kind: type[S], section: str) -> S:
    try:
        return msgspec.convert(value, kind)
    except msgspec.ValidationError as error:
        known = ", ".join(".".join(key.path) for key in _keys((section,), kind))
        raise ConfigurationError(f"section {section}: {error}; known keys: {known}") from None
