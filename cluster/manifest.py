"""Objects as people write them, before an API server has them."""


def without_nulls(value: object) -> object:
    """Answer a manifest without its members that are null, which an API server drops before anybody sees them."""
    if isinstance(value, dict):
        return {str(key): without_nulls(inner) for key, inner in value.items() if inner is not None}
    if isinstance(value, list):
        return [without_nulls(inner) for inner in value]
    return value
