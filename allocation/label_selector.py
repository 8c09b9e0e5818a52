"""Label selectors, as the API server reads them."""

import re
import sys
from collections.abc import Mapping
from typing import Final

import msgspec

from allocation import limits

_INTEGER: Final = re.compile(r"[+-]?[0-9]{1,4000}")
"""What Go parses as an integer. Python accepts more, and raises an exception at 4,300 digits."""


MOST_EXPRESSIONS: Final = 64
"""Labels and expressions of a selector in an object other than a pod."""
OVERSIZED: Final = (
    f"is larger than any selector needs to be: at most {MOST_EXPRESSIONS} labels and expressions,"
    f" {limits.SELECTOR_VALUES} keys and values, and {limits.SELECTOR_CHARACTERS} characters"
)


class Expression(msgspec.Struct, frozen=True, gc=False):
    """A label or field selector requirement."""

    key: str
    operator: str
    values: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        """Share the operator, because there are only six."""
        msgspec.structs.force_setattr(self, "operator", sys.intern(self.operator))


class LabelSelector(msgspec.Struct, rename="camel", gc=False):
    """A label selector; all requirements must hold."""

    match_labels: dict[str, str] = {}
    match_expressions: tuple[Expression, ...] = ()

    @property
    def is_oversized(self) -> bool:
        """Whether it is too large to be kept and compared, if a user may write it in an object other than a pod."""
        if len(self.match_labels) + len(self.match_expressions) > MOST_EXPRESSIONS:
            return True
        texts = [*self.match_labels, *self.match_labels.values()]
        for each in self.match_expressions:
            texts += [each.key, *each.values]
        return len(texts) > limits.SELECTOR_VALUES or sum(map(len, texts)) > limits.SELECTOR_CHARACTERS


class ExpressionSet(msgspec.Struct, frozen=True, gc=False):
    """An expression with its values in a set, for fast lookup."""

    key: str
    operator: str
    values: frozenset[str]


Selector = tuple[Expression, ...] | None
"""A label selector: all expressions must hold. An empty selector matches everything, None matches nothing."""


def label_selector(selector: LabelSelector | None) -> Selector:
    """Read a label selector."""
    if selector is None:
        return None
    return (*of_labels(selector.match_labels), *selector.match_expressions)


def of_labels(labels: Mapping[str, str]) -> tuple[Expression, ...]:
    """Return the expressions that match objects with these labels."""
    return tuple(Expression(key, "In", (value,)) for key, value in labels.items())


def accepts(selector: Selector, labels: Mapping[str, str]) -> bool:
    """Whether `selector` matches an object with these labels."""
    return selector is not None and all(is_met(each, labels) for each in selector)


def is_met(expression: Expression | ExpressionSet, labels: Mapping[str, str]) -> bool:
    """Whether an object with these labels, or a node with these fields, meets one expression."""
    value = labels.get(expression.key)
    match expression.operator:
        case "In":
            return value in expression.values
        case "NotIn":
            return value not in expression.values
        case "Exists":
            return value is not None
        case "DoesNotExist":
            return value is None
        case "Gt" | "Lt":
            if value is None or len(expression.values) != 1:
                return False
            number, limit = _integer(value), _integer(next(iter(expression.values)))
            if number is None or limit is None:
                return False
            return number > limit if expression.operator == "Gt" else number < limit
        case _:
            return False


def _integer(text: str) -> int | None:
    """Return the integer of 64 bits in `text`, or None if it is not one."""
    number = int(text) if _INTEGER.fullmatch(text) else None
    return number if number is not None and -(2**63) <= number < 2**63 else None
