"""Manifests: objects as people write them, before an API server has processed them."""

from typing import Final

_DEEPEST: Final = 64
"""The limit of nesting. A pod has about a dozen levels; the limit protects recursive code from a stack overflow."""


class UnreadableManifestError(Exception):
    """The manifest is not an object of the expected kind; the message gives the reason."""


class NotAdmittedError(Exception):
    """Admission would refuse the object; the message gives the reason."""


def without_nulls(value: object, *, level: int = 0) -> object:
    """Return a manifest without null members, as the API server drops them, too.

    Raises:
        UnreadableManifestError: the manifest is nested too deeply.
    """
    if level > _DEEPEST:
        raise UnreadableManifestError(f"the object is nested more than {_DEEPEST} levels deep")
    if isinstance(value, dict):
        return {str(key): without_nulls(inner, level=level + 1) for key, inner in value.items() if inner is not None}
    if isinstance(value, list):
        return [without_nulls(inner, level=level + 1) for inner in value]
    return value
