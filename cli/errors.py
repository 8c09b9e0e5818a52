"""Why a command failed, in one line that names the object and the next step."""

from cluster.errors import ApiError


class CommandError(Exception):
    """The command cannot answer; the message is for the person who asked."""


def refused(error: ApiError, *, asked: str, grant: str) -> CommandError:
    """Answer the error of a request for `asked` that the API server refused; `grant` is the missing permission."""
    if error.status == 401:
        return CommandError(f"{asked}: the API server does not accept these credentials; check --context")
    if error.status == 403:
        return CommandError(f"{asked}: forbidden; ask an administrator for permission to {grant}")
    return CommandError(f"{asked}: {error.status} {error.reason}: {error.message}")
