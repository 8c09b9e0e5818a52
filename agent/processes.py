"""Which container a process of the node belongs to, by the name of its cgroup in procfs.

The kubelet names the cgroups of pods by their UIDs and the container runtime those of containers by their IDs, in all
of these forms (cgroup driver systemd or cgroupfs, cgroup v1 or v2, containerd, CRI-O or Docker's):

    0::/kubepods.slice/kubepods-burstable.slice/kubepods-burstable-pod<uid>.slice/cri-containerd-<id>.scope
    0::/kubepods/burstable/pod<uid>/<id>
    5:memory:/kubepods/pod<uid>/<id>
    0::/../../kubepods-besteffort-pod<uid>.slice/crio-<id>.scope

The last one is what an agent in a cgroup namespace of its own sees, as pods have it with cgroup v2. A container cannot
choose the name: only what follows below its own cgroup is in its hands, and the first match counts.
"""

import re
from pathlib import Path
from typing import Final

import msgspec

_UID: Final = r"[0-9a-f]{8}(?:[-_][0-9a-f]{4}){3}[-_][0-9a-f]{12}|[0-9a-f]{32}"
"""systemd's names have underscores; the UID of a static pod is a hash without hyphens."""
_CONTAINER: Final = re.compile(
    rf"(?:^|[/-])(?P<pod>pod(?P<uid>{_UID}))(?P<slice>\.slice)?[/:](?P<name>(?:[a-z][a-z-]*[-:])?(?P<id>[0-9a-f]{{64}})(?:\.scope)?)(?=/|$)"
)
_LONGEST_FILE: Final = 16384
_INITIAL_PID_NAMESPACE: Final = "pid:[4026531836]"
"""The inode of the kernel's first PID namespace, PROC_PID_INIT_INO in include/linux/proc_ns.h."""
_CGROUPS: Final = "/sys/fs/cgroup"


class Container(msgspec.Struct, frozen=True):
    """A container of a pod.

    Attributes:
        uid: the pod's UID.
        id: the container's ID, without the name of the runtime.
        cgroup: the path of its cgroup v2 on the host, in sysfs; empty if unknown.
    """

    uid: str
    id: str
    cgroup: str = ""


def sees_host(procfs: Path) -> bool:
    """Whether this process has the PID namespace of the host, so that it sees the processes of containers."""
    try:
        return str((procfs / "self" / "ns" / "pid").readlink()) == _INITIAL_PID_NAMESPACE
    except OSError:
        return False


def container_of(procfs: Path, pid: int) -> Container | None:
    """Return the container of a process; None if it belongs to none, or has ended."""
    try:
        with (procfs / str(pid) / "cgroup").open("rb") as file:
            return parse(file.read(_LONGEST_FILE).decode(errors="replace"))
    except OSError:
        return None


def parse(text: str) -> Container | None:
    """Return the container that a file `/proc/<pid>/cgroup` names, if it names one."""
    for line in text.splitlines():
        _, _, rest = line.partition(":")
        controllers, _, path = rest.partition(":")
        if match := _CONTAINER.search(path):
            cgroup = _on_host(path[: match.start("pod")], match) if not controllers else ""
            return Container(match["uid"].replace("_", "-"), match["id"], cgroup)
    return None


def _on_host(before: str, match: re.Match[str]) -> str:
    """Return the path of a cgroup v2 in the host's sysfs; of a path relative to the agent's, by systemd's naming."""
    if match["slice"]:
        # systemd nests slices by their names: a-b-c.slice is in a-b.slice, which is in a.slice.
        prefix = before.rpartition("/")[2].rstrip("-").split("-")
        parents = ["-".join(prefix[:length]) + ".slice" for length in range(1, len(prefix) + 1)]
        pod = f"{'-'.join(prefix)}-{match['pod']}.slice"
        return "/".join((_CGROUPS, *parents, pod, match["name"])) if match["name"].endswith(".scope") else ""
    return f"{_CGROUPS}{before}{match['pod']}/{match['name']}" if ".." not in before else ""
