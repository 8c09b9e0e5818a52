"""What the API server refuses, and why."""

from __future__ import annotations

from typing import TYPE_CHECKING

from lab.connection import RefusedError

if TYPE_CHECKING:
    from collections.abc import Callable


def refusal(request: Callable[[], object]) -> str:
    """Return why the API server refuses a request, such as `403 Forbidden: message`; empty if it accepts it."""
    try:
        request()
    except RefusedError as error:
        return error.why
    return ""
