"""YAML that people write, read with one set of limits.

PyYAML's safe loader keeps the last of two equal keys, reads what looks like a date as a date, and shares one object
among all aliases of an anchor, so that aliases of aliases make an object of any size from a few lines. Here equal keys
are an error, dates are text, and each alias is a copy; the number of copies and the depth of nesting are limited.
"""

from typing import Any, ClassVar, Final

import yaml

DEEPEST: Final = 100
"""Levels of nesting. A pod has about a dozen."""
TOO_DEEP: Final = f"it is nested deeper than {DEEPEST} levels"
_SHOWN: Final = 64
"""The characters of a tag that a message shows."""
_TIMESTAMP: Final = "tag:yaml.org,2002:timestamp"


class UnreadableDocumentError(Exception):
    """The text is not a document within the limits; the message names the line where it is known."""


def without_timestamps(resolvers: dict[str, Any]) -> dict[str, Any]:
    """Return implicit resolvers that leave what looks like a date as text, which it is in JSON."""
    return {
        first: [(tag, pattern) for tag, pattern in rules if tag != _TIMESTAMP] for first, rules in resolvers.items()
    }


class Loader(yaml.SafeLoader):
    """PyYAML's safe loader within the limits of this module.

    Attributes:
        most_copies: how many values the aliases of a document may add; 0 refuses aliases.
    """

    yaml_implicit_resolvers = without_timestamps(yaml.SafeLoader.yaml_implicit_resolvers)
    most_copies: ClassVar[int] = 100_000

    _copies = 0

    def compose_mapping_node(self, anchor: Any) -> yaml.MappingNode:
        """Compose a mapping, in which each key occurs once."""
        mapping = super().compose_mapping_node(anchor)
        seen: set[tuple[str, str]] = set()
        for key, _ in mapping.value:
            if not isinstance(key, yaml.ScalarNode):
                continue
            if (key.tag, key.value) in seen:
                problem = f"duplicate key {key.value!r}; remove one"
                raise yaml.composer.ComposerError(None, None, problem, key.start_mark)
            seen.add((key.tag, key.value))
        return mapping

    def construct_object(self, node: yaml.Node, deep: bool = False) -> Any:  # noqa: FBT001, FBT002, ARG002
        """Construct an object for each alias, so that one copy may change alone."""
        if node in self.constructed_objects:
            del self.constructed_objects[node]
            self._copies += 1
            if self._copies > self.most_copies:
                most = self.most_copies
                problem = f"aliases add more than {most} values" if most else "it has an alias; write each part out"
                raise yaml.constructor.ConstructorError(None, None, problem, node.start_mark)
        try:
            return super().construct_object(node, deep=True)
        except (IndexError, KeyError) as error:  # PyYAML takes for granted that a text with an explicit tag fits it
            problem = f"the value does not fit its tag {node.tag[:_SHOWN]}"
            raise yaml.constructor.ConstructorError(None, None, problem, node.start_mark) from error


def load(text: str | bytes, *, loader: type[Loader] = Loader, lines_before: int = 0) -> Any:
    """Return the content of one document.

    Args:
        text: in UTF-8 where it is bytes.
        loader: how to construct the content.
        lines_before: lines of the file that precede `text`, for messages.

    Raises:
        UnreadableDocumentError: the text is not YAML, or exceeds a limit.
    """
    try:
        content = yaml.load(text, Loader=loader)  # noqa: S506 -- a SafeLoader
    except yaml.MarkedYAMLError as error:
        mark = error.problem_mark or error.context_mark
        where = f"line {lines_before + mark.line + 1}, column {mark.column + 1}: " if mark else ""
        raise UnreadableDocumentError(f"{where}{error.problem or error.context}") from None
    except (yaml.YAMLError, ValueError) as error:
        raise UnreadableDocumentError(" ".join(str(error).split())) from None
    except RecursionError:
        raise UnreadableDocumentError(TOO_DEEP) from None
    require_shallow(content)
    return content


def require_shallow(content: Any) -> None:
    """Check the depth of decoded YAML or JSON.

    Raises:
        UnreadableDocumentError: it is nested too deeply.
    """
    level = [content]
    for _ in range(DEEPEST):
        values = (each.values() if isinstance(each, dict) else each for each in level if isinstance(each, dict | list))
        level = [inner for some in values for inner in some]
    if level:
        raise UnreadableDocumentError(TOO_DEEP)
