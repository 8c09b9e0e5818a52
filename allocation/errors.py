"""What a person did that cannot be done, in words that name the field, its value and the way out."""


class AllocationError(ValueError):
    """Base of everything this library refuses."""


class InvalidFieldError(AllocationError):
    """A field of a user's object holds something that it may not hold."""

    def __init__(self, *, field: str, value: object, expected: str, remedy: str) -> None:
        """Say what `field` holds, what it may hold (`expected`) and what to do (`remedy`)."""
        self.field = field
        self.value = value
        self.expected = expected
        self.remedy = remedy
        super().__init__(f"{field} holds {str(value)!r}: {expected}; {remedy}")


class MalformedRecordError(AllocationError):
    """An annotation that a machine wrote cannot be read."""


class OverCapacityError(AllocationError):
    """A reservation would put a card over its capacity: a defect of the caller, never of a user."""
