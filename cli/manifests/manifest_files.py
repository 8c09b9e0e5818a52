"""The files that `-f` names."""

import sys
from pathlib import Path
from typing import Final

from cli.errors import CommandError
from cli.manifests import manifest
from cli.manifests.manifest import Document
from cluster.manifest import UnreadableManifestError

_STANDARD_INPUT: Final = "-"


def read(name: str) -> tuple[str, list[Document]]:
    """Return the label of a file for messages, and its documents; `-` is standard input.

    Raises:
        CommandError: the file cannot be read.
    """
    label = "standard input" if name == _STANDARD_INPUT else name
    try:
        text = sys.stdin.read() if name == _STANDARD_INPUT else Path(name).read_text(encoding="utf-8-sig")
    except OSError as error:
        raise CommandError(f"{label} cannot be read: {error.strerror}") from None
    except UnicodeDecodeError:
        raise CommandError(f"{label} is not text in UTF-8") from None
    try:
        return label, manifest.read(text)
    except UnreadableManifestError as error:
        raise CommandError(f"{label} is neither YAML nor JSON: {error}") from None
