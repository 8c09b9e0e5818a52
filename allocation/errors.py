"""Errors whose messages name the field, its value and the remedy."""


class AllocationError(ValueError):
    """Base of all errors of this library."""


class InvalidFieldError(AllocationError):
    """A field of a user's object has an invalid value."""

    def __init__(self, *, field: str, value: object, expected: str, remedy: str) -> None:
        """Describe the invalid `value` of `field`, which values are valid (`expected`) and what to do (`remedy`)."""
        self.field = field
        self.value = value
        self.expected = expected
        self.remedy = remedy
        super().__init__(f"{field} holds {str(value)!r}: {expected}; {remedy}")


def invalid_annotation(
    key: str, value: str, *, expected: str, remedy: str = "change it, or remove it"
) -> InvalidFieldError:
    """Return the error of the annotation `key` of a user's object, which has an invalid `value`."""
    return InvalidFieldError(field=f'metadata.annotations["{key}"]', value=value, expected=expected, remedy=remedy)


class MalformedRecordError(AllocationError):
    """An annotation that a program wrote cannot be read."""


class OverCapacityError(AllocationError):
    """A reservation would put a card over its capacity: a bug in the caller, not an error of a user."""
