"""A stand-in for `nvidia-cuda-mps-control -f`: it listens, and ends at `quit` or the end of its standard input.

With the argument `fail` it ends at once; with `deaf` it does not end at `quit`.
"""

import os
import signal
import socket
import sys
from pathlib import Path


def main() -> int:
    """Serve until `quit`; write what it was started with into its log directory."""
    if "fail" in sys.argv:
        return 3
    control = Path(os.environ["CUDA_MPS_PIPE_DIRECTORY"]) / "control"
    logs = Path(os.environ["CUDA_MPS_LOG_DIRECTORY"])
    with socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET) as server:
        server.bind(str(control))
        server.listen()
        (logs / "arguments").write_text(" ".join(sys.argv[1:]), encoding="utf-8")
        for line in sys.stdin:
            if line == "quit\n" and "deaf" not in sys.argv:
                break
        (logs / "ended").touch()
        if "deaf" in sys.argv:
            signal.pause()
    control.unlink()
    return 0


if __name__ == "__main__":
    sys.exit(main())
