"""Merge patches (RFC 7396), as the API server applies them."""

from typing import Any


def merged(now: Any, patch: Any) -> Any:
    """Return the result of a merge patch."""
    if not isinstance(patch, dict):
        return patch
    result = dict(now) if isinstance(now, dict) else {}
    for key, value in patch.items():
        if value is None:
            result.pop(key, None)
        else:
            result[key] = merged(result.get(key), value)
    return result
