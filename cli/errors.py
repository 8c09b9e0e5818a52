"""Errors of commands. Each message is one line that names the object and the next step."""

from pathlib import Path
from typing import ClassVar, Final

VIEWER: Final = "tranche-viewer (manifests/base/rbac/viewer.yaml)"
OPERATOR: Final = "tranche-operator (manifests/base/rbac/operator.yaml)"
_READING: Final = ("get", "list", "watch")


class CommandError(Exception):
    """A command failed; the message is for the user."""

    code: ClassVar[int] = 1
    """The exit code of the process."""


class UsageError(CommandError):
    """The arguments of the command line contradict one another."""

    code = 2


class ConfigurationFileError(UsageError):
    """The file of `--config`, or the installed configuration, cannot be read or is wrong; the message says where."""


class NotInstalledError(CommandError):
    """Tranche is not installed in the cluster."""

    def __init__(self) -> None:
        """Name the command that installs it."""
        super().__init__(
            "Tranche is not installed in this cluster: the resource gpunodestatuses is not defined; install it with "
            "'helm install' or 'kubectl apply -k manifests/install' (docs/start.md), or choose another --context"
        )


def read_text(path: str) -> str:
    """Read a configuration file.

    Raises:
        ConfigurationFileError: the file cannot be read.
    """
    try:
        return Path(path).read_text(encoding="utf-8")
    except OSError as error:
        raise ConfigurationFileError(f"configuration file {path} cannot be read: {error.strerror}") from None
    except UnicodeDecodeError:
        raise ConfigurationFileError(f"configuration file {path} is not text in UTF-8") from None


class MissingRightError(CommandError):
    """The API server refused a request for lack of rights; the message names the verb, and the role that grants it."""

    def __init__(self, *, verb: str, resource: str, namespace: str, server: str = "", role: str = "") -> None:
        """Describe the missing right.

        Args:
            verb: the verb that is missing.
            resource: the plural of the resource.
            namespace: empty for the whole cluster.
            server: the message of the API server, which names the user.
            role: what grants it, if that is not one of our ClusterRoles for people.
        """
        where = f"in namespace {namespace}" if namespace else "of the whole cluster"
        self.right = f"{verb} {resource} {where}"
        self.cause = f"{self.right} is forbidden"
        """Why something else was done instead, in a few words."""
        role = role or f"ClusterRole {VIEWER if verb in _READING else OPERATOR}"
        detail = f" ({server})" if server else ""
        super().__init__(f"{self.right}: forbidden{detail}; ask an administrator for {role}, which grants it")


class MissingPackageError(CommandError):
    """A Python package is not installed that only the processes, and few commands, need."""

    def __init__(self, missing: ModuleNotFoundError, *, program: str = "kubectl-gpu") -> None:
        """Name the package that `missing` names, and the extra that has it.

        Args:
            missing: the failed import.
            program: what to install with the extra.
        """
        self.cause = f"the Python package {missing.name} is not installed"
        """Why something else was done instead, in a few words."""
        super().__init__(f"{self.cause}; install {program} with the extra 'server' (docs/install.md)")
