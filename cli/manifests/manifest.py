"""Manifests, read and printed so that unchanged parts keep their text.

A document keeps its text. In a document that changes, scalars remember how they were written: the YAML of other tools
differs from PyYAML's in what is a number or a boolean, so a quoted "1e3" or "yes" must stay quoted.
"""

import json
import re
from collections.abc import Iterator
from typing import Any, Final

import msgspec
import yaml

from cluster import yaml_documents
from cluster.manifest import UnreadableManifestError
from cluster.yaml_documents import UnreadableDocumentError, require_shallow, without_timestamps

_SEPARATOR: Final = re.compile(r"^---[ \t]*(?:#.*)?$", re.MULTILINE)
_VERY_WIDE: Final = 2**20


class Document(msgspec.Struct):
    """One document of a file.

    Attributes:
        text: the document as it is in the file.
        content: the decoded document; callers may change it in place.
        changed: whether a caller has changed `content`.
    """

    text: str
    content: Any
    changed: bool = False

    @property
    def plain(self) -> Any:
        """The content as JSON has it, whose scalars do not remember how they were written.

        What only YAML has, such as `!!binary`, becomes a text.
        """
        return json.loads(json.dumps(self.content, default=str))


class _Text(str):
    """A string that remembers its style."""

    __slots__ = ("style",)
    style: str | None


class _Integer(int):
    """An integer that remembers its spelling, such as 0x10 or 1_000."""

    spelling: str


class _Float(float):
    """A float that remembers its spelling, such as 0.50."""

    spelling: str


def read(text: str) -> list[Document]:
    """Return the documents of `text`; the content of an empty document is None.

    Raises:
        UnreadableManifestError: the text is neither YAML nor JSON; the message names the line.
    """
    try:
        if text.lstrip().startswith("{"):
            try:
                return list(_json_documents(text))
            except json.JSONDecodeError:
                pass  # a flow mapping of YAML also begins with a brace
        return list(_yaml_documents(text))
    except (UnreadableDocumentError, ValueError) as error:
        raise UnreadableManifestError(str(error)) from None


def in_yaml(documents: list[Document]) -> str:
    """Return documents as YAML; unchanged ones keep their text."""
    texts = (_dumped(each.content) if each.changed else each.text for each in documents)
    return "---\n".join(text if text.endswith("\n") else f"{text}\n" for text in texts)


def in_json(documents: list[Document]) -> str:
    """Return documents as JSON objects, one after the other."""
    return "".join(json.dumps(each.content, indent=2, ensure_ascii=False) + "\n" for each in documents if each.content)


def _json_documents(text: str) -> Iterator[Document]:
    decoder = json.JSONDecoder()
    position = 0
    while begin := re.compile(r"\S").search(text, position):
        try:
            content, position = decoder.raw_decode(text, begin.start())
        except RecursionError:
            raise UnreadableDocumentError(yaml_documents.TOO_DEEP) from None
        require_shallow(content)
        yield Document(text[begin.start() : position], content)


def _yaml_documents(text: str) -> Iterator[Document]:
    edges = [match.span() for match in _SEPARATOR.finditer(text)]
    begins = [0, *(end + 1 for _, end in edges)]
    ends = [*(start for start, _ in edges), len(text)]
    for begin, end in zip(begins, ends, strict=True):
        if text[begin:end].strip():
            content = yaml_documents.load(text[begin:end], loader=_Loader, lines_before=text.count("\n", 0, begin))
            yield Document(text[begin:end], content)


def _dumped(content: Any) -> str:
    return str(yaml.dump(content, Dumper=_Dumper, sort_keys=False, allow_unicode=True, width=_VERY_WIDE, indent=2))


class _Loader(yaml_documents.Loader):
    """Constructs scalars that remember how they were written."""


class _Dumper(yaml.SafeDumper):
    yaml_implicit_resolvers = without_timestamps(yaml.SafeDumper.yaml_implicit_resolvers)

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


def objects_in(document: object) -> Iterator[dict[str, Any]]:
    """Return the object of a document, or those inside lists."""
    if not isinstance(document, dict):
        return
    items = document.get("items")
    if str(document.get("kind")).endswith("List") and isinstance(items, list):
        for item in items:
            yield from objects_in(item)
    else:
        yield document
