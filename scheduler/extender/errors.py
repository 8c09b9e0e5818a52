"""What `/bind` answers unless it binds a pod."""


class RefusedError(Exception):
    """A pod is not bound; the message says why."""
