"""The first process of the real node's namespaces. It runs as a script and imports no other module of the project.

Some programs of a node require folders and kernel settings that belong to the machine. In the mount namespace of the
node, these folders are empty ones in memory, and these settings already have the required values, so no program changes
the machine. Then this process waits. As process 1 it inherits orphans of containerd's shims, and when it exits, every
process and every mount of the node ends.
"""

from __future__ import annotations

import signal
import subprocess
import sys
from pathlib import Path

# The kubelet sets these for the whole machine (kubernetes, pkg/kubelet/cm, setupKernelTunables), the bridge plugin the
# last one; neither changes a setting that already has the required value.
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
    """Prepare the namespace, create the file `ready`, and wait for SIGTERM.

    Args:
        scratch: an empty folder for the files that replace kernel settings.
        ready: the file to create once the namespace is prepared.
        folders: the folders to replace by empty ones.
    """
    for folder in folders:
        subprocess.run(["mount", "-t", "tmpfs", "tranche-lab", folder], check=True)
    for number, (setting, value) in enumerate(SETTINGS.items()):
        if (knob := Path("/proc/sys") / setting).exists():
            stand_in = scratch / str(number)
            stand_in.write_text(f"{value}\n", encoding="ascii")
            subprocess.run(["mount", "--bind", stand_in, knob], check=True)
    # From here on, the kernel reaps the orphans of the namespace.
    signal.signal(signal.SIGCHLD, signal.SIG_IGN)
    # The kernel does not deliver signals to process 1 that it neither handles nor blocks.
    signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGTERM})
    ready.touch()
    signal.sigwait({signal.SIGTERM})


if __name__ == "__main__":
    main(Path(sys.argv[1]), Path(sys.argv[2]), sys.argv[3:])
