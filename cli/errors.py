"""Why a command failed, in one line that names the object and the next step."""

from typing import Final

VIEWER: Final = "tranche-viewer (manifests/base/rbac/viewer.yaml)"
OPERATOR: Final = "tranche-operator (manifests/base/rbac/operator.yaml)"
_READING: Final = ("get", "list", "watch")


class CommandError(Exception):
    """The command cannot answer; the message is for the person who asked."""


class MissingRightError(CommandError):
    """The API server forbids it; names the verb that is missing and the role that has it."""

    def __init__(self, *, verb: str, resource: str, namespace: str, server: str) -> None:
        """Say that `verb` on `resource`, in `namespace` or, where that is empty, in all, is missing.

        `server` is what the API server said, which names who asked.
        """
        where = f"in namespace {namespace}" if namespace else "of the whole cluster"
        self.right = f"{verb} {resource} {where}"
        role = VIEWER if verb in _READING else OPERATOR
        said = f" ({server})" if server else ""
        super().__init__(f"{self.right}: forbidden{said}; ask an administrator for ClusterRole {role}, which has it")
