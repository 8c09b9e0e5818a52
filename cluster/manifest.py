"""Objects as people write them, before an API server has them."""

from typing import Final

_DEEPEST: Final = 64
"""Levels; a pod has a dozen, and what goes through one level by level should not be stopped by how deep a stack is."""


class UnreadableManifestError(Exception):
    """It is no object of the kind that was wanted; says why."""


class NotAdmittedError(Exception):
    """Admission would refuse the object; says why."""


def without_nulls(value: object, *, level: int = 0) -> object:
    """Answer a manifest without its members that are null, which an API server drops before anybody sees them.

    Raises:
        UnreadableManifestError: it is nested too deeply.
    """
    if level > _DEEPEST:
        raise UnreadableManifestError(f"the object is nested more than {_DEEPEST} levels deep")
    if isinstance(value, dict):
        return {str(key): without_nulls(inner, level=level + 1) for key, inner in value.items() if inner is not None}
    if isinstance(value, list):
        return [without_nulls(inner, level=level + 1) for inner in value]
    return value
