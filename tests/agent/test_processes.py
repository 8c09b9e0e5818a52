"""Which container a process belongs to, by the names that kubelets and container runtimes give cgroups."""

from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from agent import processes
from agent.processes import Container
from tests.agent.support.containers import ID, OTHER_ID, OTHER_UID, UID, Procfs, cgroup

_SYSTEMD = f"pod{UID.replace('-', '_')}.slice"
_STATIC = "0123456789abcdef0123456789abcdef"
_ROOT = "/sys/fs/cgroup"


@pytest.mark.parametrize(
    ("text", "uid", "path"),
    [
        (f"0::{cgroup()}", UID, f"{_ROOT}{cgroup()}"),
        (f"0::{cgroup()}/init.scope", UID, f"{_ROOT}{cgroup()}"),
        (f"0::/../../kubepods-burstable-{_SYSTEMD}/cri-containerd-{ID}.scope", UID, f"{_ROOT}{cgroup()}"),
        (
            f"0::/kubelet.slice/kubelet-kubepods.slice/kubelet-kubepods-{_SYSTEMD}/crio-{ID}.scope",
            UID,
            f"{_ROOT}/kubelet.slice/kubelet-kubepods.slice/kubelet-kubepods-{_SYSTEMD}/crio-{ID}.scope",
        ),
        (f"0::/kubepods/burstable/pod{UID}/{ID}", UID, f"{_ROOT}/kubepods/burstable/pod{UID}/{ID}"),
        (f"0::/kubepods/pod{_STATIC}/{ID}", _STATIC, f"{_ROOT}/kubepods/pod{_STATIC}/{ID}"),
        (f"0::/../../pod{UID}/{ID}", UID, ""),
        (f"1:name=systemd:/\n5:memory:/kubepods/besteffort/pod{UID}/{ID}", UID, ""),
        (f"9:cpuset:/kubepods.slice/kubepods-{_SYSTEMD}/docker-{ID}.scope", UID, ""),
        (f"0::/system.slice/containerd.service/kubepods-burstable-{_SYSTEMD}:cri-containerd:{ID}", UID, ""),
    ],
)
def test_container_is_read_from_the_names_of_every_runtime(text: str, uid: str, path: str) -> None:
    """Cgroup v1 and v2, systemd and cgroupfs, containerd, CRI-O and Docker; from within a cgroup namespace, too."""
    assert processes.parse(text) == Container(uid, ID, path)


@pytest.mark.parametrize(
    "text",
    ["", "0::/", "0::/system.slice/sshd.service", f"0::/kubepods/pod{UID}", f"0::/docker/{ID}", "\x00\ufffd:::"],
)
def test_other_processes_belong_to_no_container(text: str) -> None:
    """Those of the host, of pods' sandboxes without an ID, and of containers outside of Kubernetes."""
    assert processes.parse(text) is None


def test_container_cannot_claim_to_be_another_one() -> None:
    """What a container creates below its own cgroup is not read."""
    text = f"0::{cgroup()}{cgroup(OTHER_UID, OTHER_ID)}"
    assert processes.parse(text) == Container(UID, ID, f"{_ROOT}{cgroup()}")


@given(st.text())
def test_any_text_is_read(text: str) -> None:
    """Whatever the file has, the result is a container or none."""
    assert processes.parse(text) is None


def test_process_that_has_ended_belongs_to_no_container(tmp_path: Path) -> None:
    """Between NVML's list and procfs a process may end."""
    procfs = Procfs(tmp_path / "proc")
    procfs.runs(7)
    assert processes.container_of(procfs.path, 7) is not None
    assert processes.container_of(procfs.path, 8) is None


def test_the_hosts_pid_namespace_is_recognised(tmp_path: Path) -> None:
    """By its inode, which is the same on every kernel."""
    assert processes.sees_host(Procfs(tmp_path / "host").path)
    assert not processes.sees_host(Procfs(tmp_path / "pod", pid_namespace="pid:[4026532198]").path)
    assert not processes.sees_host(tmp_path / "none")
