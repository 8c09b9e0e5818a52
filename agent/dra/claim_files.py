"""The CDI files of prepared claims, one each, in a folder that the container runtime reads."""

import os
import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final

import msgspec

from agent.refusal import Refusal

_PREFIX: Final = "gpu.scheduling-claim-"
_SUFFIX: Final = ".json"
_UID: Final = re.compile(r"[0-9A-Za-z][-0-9A-Za-z]{0,62}")


class ClaimFiles:
    """The files of a folder that belong to claims of our driver; others are left alone."""

    def __init__(self, folder: Path) -> None:
        """Use `folder`, which is created with the first file."""
        self._folder = folder

    def write(self, uid: str, specification: Mapping[str, Any]) -> None:
        """Write the file of a claim; the runtime sees the old one, or none, until the new one is complete.

        Raises:
            Refusal: the UID cannot be part of a file's name.
            OSError: the folder cannot be written.
        """
        path = self._path(uid)
        self._folder.mkdir(parents=True, exist_ok=True)
        # The runtime reads files by their suffix.
        partial = path.with_suffix(".partial")
        with partial.open("wb") as file:
            file.write(msgspec.json.encode(specification))
            file.flush()
            os.fsync(file.fileno())
        partial.replace(path)

    def remove(self, uid: str) -> None:
        """Remove the file of a claim, if it has one.

        Raises:
            Refusal: the UID cannot be part of a file's name.
            OSError: the folder cannot be written.
        """
        self._path(uid).unlink(missing_ok=True)

    def uids(self) -> frozenset[str]:
        """Return the UIDs of the claims that have files, and remove what was not completed."""
        for partial in self._folder.glob(f"{_PREFIX}*.partial"):
            partial.unlink(missing_ok=True)
        found = self._folder.glob(f"{_PREFIX}*{_SUFFIX}")
        return frozenset(path.name.removeprefix(_PREFIX).removesuffix(_SUFFIX) for path in found)

    def _path(self, uid: str) -> Path:
        if not _UID.fullmatch(uid):
            raise Refusal(f"{uid[:63]!r} is not the UID of a claim")
        return self._folder / f"{_PREFIX}{uid}{_SUFFIX}"
