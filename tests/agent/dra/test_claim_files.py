"""The CDI files of claims: complete or not there, and no others are touched."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

import pytest

from agent.dra.claim_files import ClaimFiles
from agent.refusal import Refusal

if TYPE_CHECKING:
    from pathlib import Path


def test_file_appears_complete_and_goes(tmp_path: Path) -> None:
    """Writing again replaces it; removing twice is nothing."""
    files = ClaimFiles(tmp_path / "cdi")
    assert files.uids() == frozenset()
    for version in ("1", "2"):
        files.write("u-1", {"cdiVersion": version})
        (path,) = (tmp_path / "cdi").iterdir()
        assert json.loads(path.read_bytes()) == {"cdiVersion": version}
        assert path.suffix == ".json"
    assert files.uids() == {"u-1"}
    files.remove("u-1")
    files.remove("u-1")
    assert files.uids() == frozenset()


def test_what_was_not_completed_is_removed_and_others_stay(tmp_path: Path) -> None:
    """An agent that died while it wrote leaves a file that no runtime reads."""
    files = ClaimFiles(tmp_path)
    (tmp_path / "gpu.scheduling-claim-u.partial").touch()
    (tmp_path / "nvidia.yaml").touch()
    assert files.uids() == frozenset()
    assert [path.name for path in tmp_path.iterdir()] == ["nvidia.yaml"]


@pytest.mark.parametrize("uid", ["", "../../etc/x", "a/b", "a.b", "-a", "a" * 64])
def test_no_uid_leaves_the_folder(tmp_path: Path, uid: str) -> None:
    """The kubelet sends it, and it becomes a path."""
    files = ClaimFiles(tmp_path)
    for call in (lambda: files.write(uid, {}), lambda: files.remove(uid)):
        with pytest.raises(Refusal, match="is not the UID of a claim"):
            call()
