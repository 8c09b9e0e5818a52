from __future__ import annotations

import dataclasses
from typing import TYPE_CHECKING

import pytest

from lab import binaries, cache, containerd, go, go_module
from lab.errors import LabError

if TYPE_CHECKING:
    from pathlib import Path


@pytest.fixture
def assets(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Set an empty KUBEBUILDER_ASSETS and an empty cache."""
    folder = tmp_path / "assets"
    folder.mkdir()
    monkeypatch.setenv("KUBEBUILDER_ASSETS", str(folder))
    monkeypatch.setenv("TRANCHE_CACHE", str(tmp_path / "cache"))
    return folder


def program(path: Path, prints: str = "") -> Path:
    """Create a program that prints one line."""
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(f"#!/bin/sh\necho {prints}\n")
    path.chmod(0o755)
    return path


def unexpected(line: str) -> None:
    """Fail on a report where none is expected."""
    pytest.fail(f"unexpected report: {line}")


def test_given_binaries_come_before_the_cache(assets: Path, tmp_path: Path) -> None:
    """Binaries in KUBEBUILDER_ASSETS are used first, then cached ones, and neither is built."""
    given = program(assets / "kube-apiserver", f"Kubernetes {binaries.kubernetes_version()}")
    cached = program(binaries.MODULE.cached_folder() / "etcd")
    program(binaries.MODULE.cached_folder() / "kube-apiserver")
    binaries.provide(tmp_path / "bin", ["etcd", "kube-apiserver"], report=unexpected)
    assert (tmp_path / "bin" / "kube-apiserver").readlink() == given
    assert (tmp_path / "bin" / "etcd").readlink() == cached


def test_complete_assets_may_have_any_version(assets: Path, tmp_path: Path) -> None:
    """All six binaries of another version are used, and none of the lab's version is added."""
    for name in binaries.PACKAGES:
        program(assets / name, "Kubernetes v1.30.0")
    binaries.provide(tmp_path / "bin", report=unexpected)
    assert {link.readlink().parent for link in (tmp_path / "bin").iterdir()} == {assets}
    assert binaries.missing() == []


def test_incomplete_assets_of_another_version_are_refused(assets: Path, tmp_path: Path) -> None:
    """A kubelet newer than its API server is not supported, so versions are not mixed."""
    program(assets / "kube-apiserver", "Kubernetes v1.30.0")
    with pytest.raises(LabError, match=r"its kube-apiserver is v1\.30\.0, and etcd, .* would be built as v1\.34\.4"):
        binaries.provide(tmp_path / "bin", report=unexpected)


def test_links_follow_a_change_of_assets(assets: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A second call replaces the links of the first."""
    for folder in (assets, tmp_path / "newer"):
        program(folder / "etcd")
        monkeypatch.setenv("KUBEBUILDER_ASSETS", str(folder))
        binaries.provide(tmp_path / "bin", ["etcd"], report=unexpected)
    assert (tmp_path / "bin" / "etcd").readlink() == tmp_path / "newer" / "etcd"


def test_the_cache_folder_depends_on_the_module(tmp_path: Path) -> None:
    """The same pins have the same cache folder, and changed pins another one."""
    module = tmp_path / "kubernetes"
    for file in ("go.mod", "go.sum", "etcd/main.go"):
        (module / file).parent.mkdir(parents=True, exist_ok=True)
        (module / file).write_bytes((binaries.MODULE.folder / file).read_bytes())
    copy = dataclasses.replace(binaries.MODULE, folder=module)
    assert copy.cached_folder().name == binaries.MODULE.cached_folder().name
    (module / "go.sum").write_text("")
    assert copy.cached_folder().name != binaries.MODULE.cached_folder().name


def test_containerd_is_a_module_of_its_own(assets: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """It is built from its own pins, so that neither rebuilds the other; KUBEBUILDER_ASSETS has no containerd."""
    toolchain = fake_go(tmp_path, 'echo "$PWD" > "$out"')
    monkeypatch.setattr(go, "installed", lambda: toolchain)
    containerd.provide(tmp_path / "bin", report=lambda _: None)
    assert {link.name for link in (tmp_path / "bin").iterdir()} == {"containerd", "containerd-shim-runc-v2", "ctr"}
    assert (tmp_path / "bin" / "containerd").read_text() == f"{containerd.MODULE.folder}\n"
    assert containerd.MODULE.cached_folder().name.startswith("containerd-v2.")


def test_tests_of_dra_have_a_newer_api_server_and_kube_scheduler(
    assets: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Both are built from pins of their own; everything else is what every lab has."""
    toolchain = fake_go(tmp_path, 'echo "$PWD" > "$out"')
    monkeypatch.setattr(go, "installed", lambda: toolchain)
    names = ("etcd", "kube-apiserver", "kube-scheduler")
    binaries.provide_for_dra(tmp_path / "bin", names, report=lambda _: None)
    folders = {name: (tmp_path / "bin" / name).read_text().strip() for name in names}
    newer = str(binaries.DRA_MODULE.folder)
    assert folders == {"etcd": str(binaries.MODULE.folder), "kube-apiserver": newer, "kube-scheduler": newer}
    assert binaries.DRA_MODULE.cached_folder().name.startswith("kubernetes-1.37-v1.37.")


def fake_go(folder: Path, script: str) -> Path:
    """Create a Go that is new enough and builds with `script`, which has the output path in $out."""
    path = folder / "go"
    path.write_text(
        "#!/bin/sh\n"
        'case "$1" in\n'
        "version) echo go version go1.99.0 linux/amd64 ;;\n"
        f"env) echo {folder}; echo {folder} ;;\n"
        'build) while [ "$1" != -o ]; do shift; done; out=$2\n'
        f"{script} ;;\n"
        "esac\n"
    )
    path.chmod(0o755)
    return path


def test_a_failed_build_leaves_nothing_and_shows_the_cause(
    assets: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The error has the compiler's message and the log, and the cache has no incomplete binary."""
    toolchain = fake_go(tmp_path, 'echo half > "$out"; echo undefined: x >&2; exit 2')
    monkeypatch.setattr(go, "installed", lambda: toolchain)
    with pytest.raises(LabError, match=r"build of etcd: go exited with 2\nundefined: x\nread .*etcd\.build\.log"):
        binaries.provide(tmp_path / "bin", ["etcd"])
    assert "etcd" in binaries.missing()


def test_a_finished_build_is_cached(assets: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A binary is built once, and one line reports the duration."""
    toolchain = fake_go(tmp_path, 'echo binary > "$out"')
    monkeypatch.setattr(go, "installed", lambda: toolchain)
    lines: list[str] = []
    binaries.provide(tmp_path / "bin", ["etcd"], report=lines.append)
    binaries.provide(tmp_path / "bin", ["etcd"], report=unexpected)
    assert lines == ["built etcd in 0 s"]
    assert (tmp_path / "bin" / "etcd").read_text() == "binary\n"


def test_a_long_build_reports_progress(assets: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The user can see that a long build is still running."""
    toolchain = fake_go(tmp_path, 'sleep 0.3; echo binary > "$out"')
    monkeypatch.setattr(go, "installed", lambda: toolchain)
    monkeypatch.setattr(go_module, "HEARTBEAT_S", 0.1)
    lines: list[str] = []
    binaries.provide(tmp_path / "bin", ["etcd"], report=lines.append)
    assert lines[0].startswith("building etcd: ")


def test_without_go_and_pip_the_error_says_what_to_install(
    assets: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """One line lists the alternatives."""
    monkeypatch.setattr(go, "installed", lambda: None)
    monkeypatch.setattr(go, "has_fallback", lambda: False)
    with pytest.raises(LabError, match=r"Go: .* no pip .*; install Go 1\.26\.6 or newer, or set KUBEBUILDER_ASSETS"):
        binaries.provide(tmp_path / "bin", ["etcd"], report=unexpected)


def test_an_old_go_is_ignored(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A Go that cannot build Kubernetes counts as missing."""
    program(tmp_path / "go", "go version go1.19.8 linux/amd64")
    monkeypatch.setenv("PATH", str(tmp_path), prepend=":")
    assert go.version(tmp_path / "go") == (1, 19, 8)
    assert go.installed() is None


def test_a_full_disk_is_detected_before_the_build(tmp_path: Path) -> None:
    """A build does not start if it would fill the disk."""
    with pytest.raises(
        LabError, match=r"GiB are free, a build needs 1e\+06 GiB; free some space, or set TRANCHE_CACHE"
    ):
        cache.require_space(tmp_path / "not" / "yet", gib=1e6, purpose="a build")
