"""Manifests read and printed so that what nobody changes stays as it was written.

A document keeps its text. Of one that does change, scalars remember how they were written: the YAML of other tools
differs from PyYAML's in what is a number or a boolean, so a quoted "1e3" or "yes" must come out quoted.
"""

import json
import re
from collections.abc import Iterator
from typing import Any, Final, TypeVar

import msgspec
import yaml

_SEPARATOR: Final = re.compile(r"^---[ \t]*(?:#.*)?$", re.MULTILINE)
_TIMESTAMP: Final = "tag:yaml.org,2002:timestamp"
_VERY_WIDE: Final = 2**20
_DEEPEST: Final = 100
_TOO_DEEP: Final = f"it is nested deeper than {_DEEPEST} levels"
_MOST_OBJECTS: Final = 100_000
"""Values of a document, of which a megabyte has some 50,000. Aliases of aliases make any number of a few lines."""

N = TypeVar("N", int, float)


class UnreadableManifestError(ValueError):
    """The text is neither YAML nor JSON; says where."""


class Document(msgspec.Struct):
    """One document of a file.

    Attributes:
        text: as it stands in the file.
        content: decoded; may be changed in place.
        changed: whether it was.
    """

    text: str
    content: Any
    changed: bool = False


class _Text(str):
    """A string that remembers its style."""

    __slots__ = ("style",)
    style: str | None


class _Integer(int):
    """A number that remembers its spelling, such as 0x10 or 1_000."""

    spelling: str


class _Float(float):
    """The same, such as 0.50."""

    spelling: str


def read(text: str) -> list[Document]:
    """Answer the documents of `text`; a document with nothing in it is None.

    Raises:
        UnreadableManifestError: it is neither YAML nor JSON.
    """
    if text.lstrip().startswith("{"):
        try:
            return list(_json_documents(text))
        except json.JSONDecodeError:
            pass  # a flow mapping of YAML begins alike
        except RecursionError:
            raise UnreadableManifestError(_TOO_DEEP) from None
        except ValueError as error:
            raise UnreadableManifestError(str(error)) from None
    return list(_yaml_documents(text))


def in_yaml(documents: list[Document]) -> str:
    """Print documents as YAML, unchanged ones as they were."""
    texts = (_dumped(each.content) if each.changed else each.text for each in documents)
    return "---\n".join(text if text.endswith("\n") else f"{text}\n" for text in texts)


def in_json(documents: list[Document]) -> str:
    """Print documents as JSON objects, one after the other."""
    return "".join(json.dumps(each.content, indent=2, ensure_ascii=False) + "\n" for each in documents if each.content)


def _json_documents(text: str) -> Iterator[Document]:
    decoder = json.JSONDecoder()
    position = 0
    while begin := re.compile(r"\S").search(text, position):
        content, position = decoder.raw_decode(text, begin.start())
        yield Document(text[begin.start() : position], _shallow(content))


def _yaml_documents(text: str) -> Iterator[Document]:
    edges = [match.span() for match in _SEPARATOR.finditer(text)]
    begins = [0, *(end + 1 for _, end in edges)]
    ends = [*(start for start, _ in edges), len(text)]
    for begin, end in zip(begins, ends, strict=True):
        if text[begin:end].strip():
            yield Document(text[begin:end], _shallow(_loaded(text[begin:end], text.count("\n", 0, begin))))


def _loaded(text: str, line: int) -> Any:
    try:
        return yaml.load(text, Loader=_Loader)  # noqa: S506 -- it is a SafeLoader
    except yaml.MarkedYAMLError as error:
        mark = error.problem_mark or error.context_mark
        where = f"line {line + mark.line + 1}, column {mark.column + 1}: " if mark else ""
        raise UnreadableManifestError(f"{where}{error.problem or error.context}") from None
    except (yaml.YAMLError, ValueError) as error:
        raise UnreadableManifestError(str(error)) from None
    except RecursionError:
        raise UnreadableManifestError(_TOO_DEEP) from None


def _shallow(content: Any) -> Any:
    """Answer `content`, which is not nested too deeply to be printed again."""
    level = [content]
    for _ in range(_DEEPEST):
        values = (each.values() if isinstance(each, dict) else each for each in level if isinstance(each, dict | list))
        level = [inner for some in values for inner in some]
    if level:
        raise UnreadableManifestError(_TOO_DEEP)
    return content


def _dumped(content: Any) -> str:
    return str(yaml.dump(content, Dumper=_Dumper, sort_keys=False, allow_unicode=True, width=_VERY_WIDE, indent=2))


def _without_timestamps(resolvers: dict[str, Any]) -> dict[str, Any]:
    """In a manifest, what looks like a date is text."""
    return {
        first: [(tag, pattern) for tag, pattern in rules if tag != _TIMESTAMP] for first, rules in resolvers.items()
    }


class _Loader(yaml.SafeLoader):
    yaml_implicit_resolvers = _without_timestamps(yaml.SafeLoader.yaml_implicit_resolvers)

    objects = 0

    def construct_object(self, node: yaml.Node, deep: bool = False) -> Any:  # noqa: FBT001, FBT002, ARG002
        """Make an object of its own for each alias: one of them may change alone."""
        self.objects += 1
        if self.objects > _MOST_OBJECTS:
            raise yaml.YAMLError(f"with its aliases written out, a document has more than {_MOST_OBJECTS} values")
        self.constructed_objects.pop(node, None)
        return super().construct_object(node, deep=True)


class _Dumper(yaml.SafeDumper):
    yaml_implicit_resolvers = _without_timestamps(yaml.SafeDumper.yaml_implicit_resolvers)

    def ignore_aliases(self, _data: Any) -> bool:
        """Write each object out."""
        return True


def _construct_text(loader: _Loader, node: yaml.ScalarNode) -> _Text:
    text = _Text(loader.construct_scalar(node))
    text.style = node.style
    return text


def _construct_integer(loader: _Loader, node: yaml.ScalarNode) -> _Integer:
    number = _Integer(loader.construct_yaml_int(node))
    number.spelling = node.value
    return number


def _construct_float(loader: _Loader, node: yaml.ScalarNode) -> _Float:
    number = _Float(loader.construct_yaml_float(node))
    number.spelling = node.value
    return number


def _represent_text(dumper: _Dumper, text: _Text) -> yaml.ScalarNode:
    return dumper.represent_scalar("tag:yaml.org,2002:str", str(text), style=text.style)


def _represent_integer(dumper: _Dumper, number: _Integer) -> yaml.ScalarNode:
    return dumper.represent_scalar("tag:yaml.org,2002:int", number.spelling)


def _represent_float(dumper: _Dumper, number: _Float) -> yaml.ScalarNode:
    return dumper.represent_scalar("tag:yaml.org,2002:float", number.spelling)


_Loader.add_constructor("tag:yaml.org,2002:str", _construct_text)
_Loader.add_constructor("tag:yaml.org,2002:int", _construct_integer)
_Loader.add_constructor("tag:yaml.org,2002:float", _construct_float)
_Dumper.add_representer(_Text, _represent_text)
_Dumper.add_representer(_Integer, _represent_integer)
_Dumper.add_representer(_Float, _represent_float)
