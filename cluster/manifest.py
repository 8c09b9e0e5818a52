"""Objects as people write them, before an API server has them."""


class UnreadableManifestError(Exception):
    """It is no object of the kind that was wanted; says why."""


class NotAdmittedError(Exception):
    """Admission would refuse the object; says why."""


def without_nulls(value: object) -> object:
    """Answer a manifest without its members that are null, which an API server drops before anybody sees them."""
    if isinstance(value, dict):
        return {str(key): without_nulls(inner) for key, inner in value.items() if inner is not None}
    if isinstance(value, list):
        return [without_nulls(inner) for inner in value]
    return value
