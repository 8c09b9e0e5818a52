"""The first process of the real node's namespaces. It runs as a script and imports nothing of ours.

Some programs of a node insist on folders and kernel settings that belong to the machine. In the node's own mount
namespace these folders are empty ones in memory, and these settings already read as wanted, so that nobody changes the
machine's. Then it waits: as process 1 it inherits what containerd's shims leave, and its end is the end of every
process and every mount of the node.
"""

from __future__ import annotations

import signal
import subprocess
import sys
from pathlib import Path

# The kubelet sets these for the whole machine (kubernetes, pkg/kubelet/cm, setupKernelTunables), the bridge plugin the
# last one; each leaves a setting alone that has the wanted value.
SETTINGS = {
    "vm/overcommit_memory": "1",
    "vm/panic_on_oom": "0",
    "kernel/panic": "10",
    "kernel/panic_on_oops": "1",
    "kernel/keys/root_maxkeys": "1000000",
    "kernel/keys/root_maxbytes": "25000000",
    "net/ipv4/ip_forward": "1",
}


def main(scratch: Path, ready: Path, folders: list[str]) -> None:
    """Prepare the namespace, say so by making `ready`, and wait for the end.

    Args:
        scratch: an empty folder, for files that stand in for kernel settings.
        ready: made when the namespace is prepared.
        folders: replaced by empty ones.
    """
    for folder in folders:
        subprocess.run(["mount", "-t", "tmpfs", "tranche-lab", folder], check=True)
    for number, (setting, value) in enumerate(SETTINGS.items()):
        if (knob := Path("/proc/sys") / setting).exists():
            stand_in = scratch / str(number)
            stand_in.write_text(f"{value}\n", encoding="ascii")
            subprocess.run(["mount", "--bind", stand_in, knob], check=True)
    # From here on the kernel reaps the orphans of the namespace.
    signal.signal(signal.SIGCHLD, signal.SIG_IGN)
    # The kernel keeps from process 1 the signals that it neither handles nor blocks.
    signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGTERM})
    ready.touch()
    signal.sigwait({signal.SIGTERM})


if __name__ == "__main__":
    main(Path(sys.argv[1]), Path(sys.argv[2]), sys.argv[3:])
