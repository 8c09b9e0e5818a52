"""Why a pod is not admitted, where it is not a field with a wrong value (`allocation.errors.InvalidFieldError`)."""


class RefusedError(Exception):
    """The pod asks for what nobody, or not this user, may have; the message ends with the way out."""
