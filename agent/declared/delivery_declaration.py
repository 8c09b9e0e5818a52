"""The delivery of a node in a fleet file, for which simulated nodes report facts that this machine does not have."""

from collections.abc import Mapping
from typing import Any

import msgspec

from allocation.delivery import NodeDelivery, Toolkit
from allocation.errors import InvalidFieldError


def read_delivery(declared: object, *, place: str) -> NodeDelivery | None:
    """Return the delivery that a node's mapping declares, or None if it declares none; the keys are those of the API.

    `place` is the position of `declared` in the file, for messages.

    Raises:
        InvalidFieldError: a key is unknown or has an invalid value.
    """
    if not isinstance(declared, Mapping) or "delivery" not in declared:
        return None
    content = declared["delivery"]
    place = f"{place}.delivery"
    _check_keys(content, NodeDelivery, place=place)
    _check_keys(content.get("toolkit"), Toolkit, place=f"{place}.toolkit")
    try:
        return msgspec.convert(content, NodeDelivery)
    except msgspec.ValidationError as error:
        raise InvalidFieldError(
            field=place, value=content, expected=str(error), remedy="docs/agent.md lists the keys and their values"
        ) from None


def _check_keys(content: Any, type_: type[msgspec.Struct], *, place: str) -> None:
    known = {field.encode_name for field in msgspec.structs.fields(type_)}
    for key in content if isinstance(content, Mapping) else ():
        if key not in known:
            raise InvalidFieldError(
                field=f"{place}.{key}",
                value=content[key],
                expected="the key is unknown",
                remedy=f"the valid keys are {', '.join(sorted(known))}",
            )
