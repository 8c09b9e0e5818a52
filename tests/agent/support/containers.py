"""A procfs with processes in the cgroups of containers, as the kernel shows it to the agent."""

from pathlib import Path

UID = "0b8c1c5e-7f0a-4f0e-9a3b-5c1d2e3f4a5b"
OTHER_UID = "99999999-7f0a-4f0e-9a3b-5c1d2e3f4a5b"
ID = "ab" * 32
OTHER_ID = "cd" * 32
HOST_NAMESPACE = "pid:[4026531836]"


def cgroup(uid: str = UID, container: str = ID) -> str:
    """Return the path of a container's cgroup v2 below the mount point, as systemd names it."""
    pod = f"pod{uid.replace('-', '_')}"
    return f"/kubepods.slice/kubepods-burstable.slice/kubepods-burstable-{pod}.slice/cri-containerd-{container}.scope"


class Procfs:
    """The files of procfs that the agent reads."""

    def __init__(self, path: Path, *, pid_namespace: str = HOST_NAMESPACE) -> None:
        self.path = path
        (path / "self" / "ns").mkdir(parents=True)
        (path / "self" / "ns" / "pid").symlink_to(pid_namespace)

    def has(self, pid: int, text: str) -> None:
        """Add a process with this content of its file `cgroup`."""
        (self.path / str(pid)).mkdir()
        (self.path / str(pid) / "cgroup").write_text(text)

    def runs(self, pid: int, uid: str = UID, container: str = ID) -> None:
        """Add a process of a container."""
        self.has(pid, f"0::{cgroup(uid, container)}\n")
