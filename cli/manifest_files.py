"""The files that `-f` names."""

import sys
from pathlib import Path
from typing import Final

from cli import manifest
from cli.errors import CommandError
from cli.manifest import Document, UnreadableManifestError

_STANDARD_INPUT: Final = "-"


def read(name: str) -> tuple[str, list[Document]]:
    """Answer what to call a file, `-` being standard input, and its documents.

    Raises:
        CommandError: it cannot be read.
    """
    spoken = "standard input" if name == _STANDARD_INPUT else name
    try:
        text = sys.stdin.read() if name == _STANDARD_INPUT else Path(name).read_text(encoding="utf-8-sig")
    except OSError as error:
        raise CommandError(f"{spoken} cannot be read: {error.strerror}") from None
    except UnicodeDecodeError:
        raise CommandError(f"{spoken} is no text in UTF-8") from None
    try:
        return spoken, manifest.read(text)
    except UnreadableManifestError as error:
        raise CommandError(f"{spoken} is neither YAML nor JSON: {error}") from None
