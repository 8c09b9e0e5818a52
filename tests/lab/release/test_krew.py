"""krew's manifest of kubectl gpu: what krew's own validation requires, and what the archives are."""

import hashlib
import re
from pathlib import Path
from typing import Any

import pytest
import yaml

from lab.errors import LabError
from lab.image.build import version
from lab.release import __main__ as release
from lab.release import archive, krew

URL = "https://releases.example.com/v1"
OTHER_PLATFORMS = (("darwin", "arm64", "tar.gz"), ("windows", "amd64", "zip"))


def touch(folder: Path, os: str, arch: str, kind: str = "tar.gz", *, of: str = "0.1.0") -> Path:
    """Write a file with the name of an archive."""
    file = folder / f"kubectl-gpu_{of}_{os}_{arch}.{kind}"
    file.write_text(f"{os} {arch}")
    return file


def manifest(folder: Path) -> Any:
    """Return the manifest that `make krew-manifest` writes."""
    assert release.main(["--folder", str(folder), "krew", URL]) == 0
    return yaml.safe_load((folder / "gpu.yaml").read_text(encoding="utf-8"))


def test_manifest_names_each_archive_with_its_digest(tmp_path: Path) -> None:
    """Krew takes the platform that fits, and refuses an archive with another digest."""
    file = touch(tmp_path, "linux", "amd64")
    for platform in OTHER_PLATFORMS:
        touch(tmp_path, *platform)
    (tmp_path / "tranche-0.1.0-py3-none-any.whl").touch()
    platforms = {each["selector"]["matchLabels"]["os"]: each for each in manifest(tmp_path)["spec"]["platforms"]}
    assert platforms.keys() == {"linux", "darwin", "windows"}
    assert platforms["linux"] == {
        "selector": {"matchLabels": {"os": "linux", "arch": "amd64"}},
        "uri": f"{URL}/kubectl-gpu_0.1.0_linux_amd64.tar.gz",
        "sha256": hashlib.sha256(file.read_bytes()).hexdigest(),
        "bin": "kubectl-gpu/kubectl-gpu",
    }
    assert platforms["windows"]["bin"] == "kubectl-gpu/kubectl-gpu.exe"


def test_manifest_is_valid_for_krew(tmp_path: Path) -> None:
    """The rules are those of krew's `validate-krew-manifest`."""
    touch(tmp_path, "linux", "amd64", of=version())
    made = manifest(tmp_path)
    assert (made["apiVersion"], made["kind"]) == ("krew.googlecontainertools.github.com/v1alpha2", "Plugin")
    assert made["metadata"] == {"name": "gpu"}  # as the file, and as `kubectl gpu`
    spec = made["spec"]
    assert re.fullmatch(r"v\d+\.\d+\.\d+", spec["version"])
    assert 0 < len(spec["shortDescription"]) <= 50
    assert "\n" not in spec["shortDescription"]
    for platform in spec["platforms"]:
        assert platform.keys() == {"selector", "uri", "sha256", "bin"}
        assert re.fullmatch(r"[a-f0-9]{64}", platform["sha256"])
        assert platform["uri"].startswith("https://")
        assert platform["selector"]["matchLabels"].keys() == {"os", "arch"}


@pytest.mark.parametrize("versions", [(), ("0.1.0", "0.2.0")])
def test_archives_are_of_one_version(
    tmp_path: Path, versions: tuple[str, ...], capsys: pytest.CaptureFixture[str]
) -> None:
    """A manifest has one version; the error lists those that were found."""
    for each in versions:
        touch(tmp_path, "linux", "amd64", of=each)
    with pytest.raises(LabError, match="archives of one version are needed"):
        krew.manifest(archive.find(tmp_path), url=URL)
    assert release.main(["--folder", str(tmp_path), "krew", URL]) == 1
    assert capsys.readouterr().err.startswith("error: krew manifest: archives of one version are needed, found")
