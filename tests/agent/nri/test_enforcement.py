"""What holds a container to its limits is mounted into it, and nothing of its own weakens it."""

from __future__ import annotations

import socket
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from agent.nri.enforcement import COUNTS, PIPES, SHARED_MEMORY, Additions, Enforcement
from agent.refusal import Refusal
from agent.settings import AgentSettings
from allocation.allocation import CardShare
from allocation.isolation import Isolation
from allocation.settings import CorePolicy
from allocation.wire import environment

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

SHARE = CardShare("GPU-a", 0, 3000, 300)


@pytest.fixture
def pipes(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """The pipe directory of a daemon that listens; its path is short, as that of a socket must be."""
    monkeypatch.chdir(tmp_path)
    folder = Path("pipes")
    folder.mkdir()
    with socket.socket(socket.AF_UNIX) as server:
        server.bind(str(folder / "control"))
        server.listen()
        yield folder


@pytest.fixture
def additions(tmp_path: Path, pipes: Path) -> Callable[..., Additions]:
    """What a container of an isolation gets on a node that has HAMi-core and a daemon of MPS."""
    library = tmp_path / "libvgpu.so"
    library.write_bytes(b"\x7fELF")

    def of(
        isolation: Isolation,
        *mounts: str,
        own: dict[str, str] | None = None,
        core_policy: CorePolicy = "default",
        **settings: Any,
    ) -> Additions:
        paths = {
            "hami_core_library": str(library),
            "mps_pipe_directory": str(pipes),
            "nri_files": str(tmp_path / "run" / "tranche"),
        }
        node = Enforcement(AgentSettings(**{**paths, **settings}), core_policy=core_policy)
        environ = {**environment.values((SHARE,), "nri", isolation=isolation), **(own or {})}
        return node.additions(isolation, (f"{name}={value}" for name, value in environ.items()), mounts)

    return of


def mounted(found: Additions) -> dict[str, tuple[str, set[str]]]:
    """Return the source and the options of each mount by its destination."""
    return {each.destination: (each.source, set(each.options)) for each in found.mounts}


# ---- what is added ---------------------------------------------------------------------------------------------------


def test_hami_core_is_loaded_into_every_process(additions: Callable[..., Additions], tmp_path: Path) -> None:
    """Library and list of preloads are files of the node that the container cannot write."""
    found = mounted(additions(Isolation.HAMI_CORE))
    assert found["/usr/local/vgpu/libvgpu.so"][0] == str(tmp_path / "libvgpu.so")
    preload, options = found["/etc/ld.so.preload"]
    assert Path(preload).read_text() == "/usr/local/vgpu/libvgpu.so\n"
    assert Path(preload).stat().st_mode & 0o777 == 0o644
    assert "ro" in options
    assert "ro" in found["/usr/local/vgpu/libvgpu.so"][1]
    assert "noexec" not in found["/usr/local/vgpu/libvgpu.so"][1]


def test_hami_core_counts_in_the_memory_of_the_container(additions: Callable[..., Additions]) -> None:
    """Its processes share one count and one lock, of which nothing stays on the node, and which no other pod holds."""
    found = additions(Isolation.HAMI_CORE)
    (counts,) = [each for each in found.mounts if each.type == "tmpfs"]
    assert counts.destination == COUNTS
    assert {"mode=1777", "size=16m", "noexec", "nosuid", "nodev"} <= set(counts.options)
    assert found.variables["CUDA_DEVICE_MEMORY_SHARED_CACHE"] == f"{COUNTS}/cudevshr.cache"


def test_a_process_of_mps_finds_its_daemon_and_cannot_change_its_pipes(
    additions: Callable[..., Additions], pipes: Path
) -> None:
    """Also without variables, because it is CUDA's default path; the node's other folders stay out."""
    found = additions(Isolation.MPS)
    assert mounted(found) == {PIPES: (str(pipes), {"rbind", "ro", "nosuid", "nodev", "noexec"})}
    assert found.variables == {"CUDA_MPS_PIPE_DIRECTORY": PIPES}


def test_the_shared_memory_of_mps_is_mounted_if_it_is_configured(additions: Callable[..., Additions]) -> None:
    """Only then, because all containers of the node would share it."""
    found = additions(Isolation.MPS, SHARED_MEMORY, mps_shared_memory="/run/tranche/shm")
    source, options = mounted(found)[SHARED_MEMORY]
    assert source == "/run/tranche/shm"
    assert "ro" not in options


@pytest.mark.parametrize("isolation", [Isolation.NONE, Isolation.CUDA, Isolation.MIG])
def test_other_isolations_need_nothing_in_the_container(
    additions: Callable[..., Additions], isolation: Isolation
) -> None:
    """The driver, or the card itself, limits it."""
    assert additions(isolation) == Additions()


def test_files_of_the_node_are_written_once_and_healed(additions: Callable[..., Additions], tmp_path: Path) -> None:
    """Containers that run have them mounted; after a reboot, or with other content, one is written a second time."""
    additions(Isolation.HAMI_CORE)
    preload = tmp_path / "run" / "tranche" / "ld.so.preload"
    before = preload.stat().st_ino
    additions(Isolation.HAMI_CORE)
    assert preload.stat().st_ino == before
    preload.write_text("")
    additions(Isolation.HAMI_CORE)
    assert preload.read_text() == "/usr/local/vgpu/libvgpu.so\n"
    assert sorted(each.name for each in preload.parent.iterdir()) == ["empty", "ld.so.preload"]


# ---- what is refused -------------------------------------------------------------------------------------------------


def test_a_node_that_has_lost_its_means_starts_no_container(
    additions: Callable[..., Additions], tmp_path: Path
) -> None:
    """A program that finds no daemon of MPS would use the card without it, and without a limit."""
    with pytest.raises(Refusal, match="isolation hami-core: /nowhere: No such file or directory"):
        additions(Isolation.HAMI_CORE, hami_core_library="/nowhere")
    with pytest.raises(Refusal, match=r"isolation mps: /nowhere/control: No such file or directory"):
        additions(Isolation.MPS, mps_pipe_directory="/nowhere")
    blocked = tmp_path / "file"
    blocked.touch()
    with pytest.raises(Refusal, match="isolation hami-core: .*file: Not a directory"):
        additions(Isolation.HAMI_CORE, nri_files=str(blocked))


@pytest.mark.parametrize(
    ("isolation", "name"),
    [
        (Isolation.HAMI_CORE, "CUDA_DEVICE_MEMORY_LIMIT"),
        (Isolation.MPS, "CUDA_MPS_PINNED_DEVICE_MEM_LIMIT"),
        (Isolation.MPS, "CUDA_MPS_ACTIVE_THREAD_PERCENTAGE"),
        (Isolation.CUDA, "NVIDIA_GPU_MEMORY_LIMIT"),
    ],
)
def test_an_empty_limit_starts_no_container(
    additions: Callable[..., Additions], isolation: Isolation, name: str
) -> None:
    """To HAMi-core it would be no limit."""
    with pytest.raises(Refusal, match=f"its isolation {isolation} has no limit, because its variable {name} is empty"):
        additions(isolation, own={name: ""})


@pytest.mark.parametrize(
    ("isolation", "destination"),
    [
        (Isolation.HAMI_CORE, "/etc/ld.so.preload"),
        (Isolation.HAMI_CORE, "/usr/local/../local/vgpu/libvgpu.so/"),
        (Isolation.HAMI_CORE, "/overrideEnv"),
        (Isolation.HAMI_CORE, f"{COUNTS}/cudevshr.cache"),
        (Isolation.MPS, PIPES),
        (Isolation.MPS, f"{PIPES}/control"),
    ],
)
def test_a_mount_of_the_pod_in_the_same_place_is_refused(
    additions: Callable[..., Additions], isolation: Isolation, destination: str
) -> None:
    """It would hide what limits the container; a mount above is below ours."""
    with pytest.raises(Refusal, match=f"is where isolation {isolation} has .*: remove it"):
        additions(isolation, "/data", destination)
    additions(isolation, "/etc", "/tmp", "/usr/local/vgpu")  # noqa: S108 -- a container's


# ---- what is emptied -------------------------------------------------------------------------------------------------


def test_variables_that_weaken_a_limit_are_emptied_wherever_they_come_from(
    additions: Callable[..., Additions],
) -> None:
    """An image or `envFrom` may bring them, which admission cannot see; what an entry gives is left as it is."""
    own = {
        "CUDA_DISABLE_CONTROL": "true",
        "CUDA_DEVICE_SM_LIMIT_0": "100",
        "CUDA_MPS_PIPE_DIRECTORY": "/mine",
        "CUDA_DEVICE_MEMORY_SHARED_CACHE": "/mine",
        "NVIDIA_DRIVER_CAPABILITIES": "all",
        "PATH": "/bin",
    }
    found = additions(Isolation.HAMI_CORE, own=own).variables
    assert {name for name, value in found.items() if not value} == {
        *("CUDA_DISABLE_CONTROL", "CUDA_DEVICE_SM_LIMIT_0", "CUDA_MPS_PIPE_DIRECTORY")
    }
    assert found["CUDA_DEVICE_MEMORY_SHARED_CACHE"] == f"{COUNTS}/cudevshr.cache"
    found = additions(Isolation.MPS, own=own).variables
    assert found["CUDA_MPS_PIPE_DIRECTORY"] == PIPES
    assert "CUDA_MPS_PINNED_DEVICE_MEM_LIMIT" not in found


@pytest.mark.parametrize("isolation", [Isolation.HAMI_CORE, Isolation.NONE])
def test_compute_is_limited_as_configured_whatever_an_image_says(
    additions: Callable[..., Additions], isolation: Isolation
) -> None:
    """`disable` switches HAMi-core's limit off, which only an administrator may; to HAMi-core, empty is the default."""
    own = {"GPU_CORE_UTILIZATION_POLICY": "disable"}
    assert additions(isolation, own=own).variables["GPU_CORE_UTILIZATION_POLICY"] == ""
    policies: tuple[CorePolicy, ...] = ("force", "disable")
    for policy in policies:
        found = additions(isolation, own=own, core_policy=policy).variables
        assert found["GPU_CORE_UTILIZATION_POLICY"] == policy
    assert "GPU_CORE_UTILIZATION_POLICY" not in additions(isolation).variables


@pytest.mark.parametrize("isolation", [Isolation.CUDA, Isolation.NONE])
def test_a_limit_of_the_toolkit_is_left_alone(additions: Callable[..., Additions], isolation: Isolation) -> None:
    """It would not start a container with an empty one."""
    assert additions(isolation, own={"NVIDIA_GPU_MEMORY_LIMIT": "80000"}).variables == {}
