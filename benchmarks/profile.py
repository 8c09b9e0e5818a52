"""Flame graphs of a running process, this one included, by py-spy; the process needs no preparation.

`python -m benchmarks.profile PID FILE.svg` records any process.
"""

import argparse
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

_RATE = 200  # samples a second; each stops the process for less than a millisecond
_END_S = 60.0


@contextmanager
def recorded(pid: int, path: Path) -> Iterator[None]:
    """Write a flame graph of process `pid` while the block runs, as SVG; `os.getpid()` is this process.

    Widths are CPU time: a waiting process is not sampled.

    Raises:
        SystemExit: py-spy is not installed, or may not read the process.
    """
    spy = shutil.which("py-spy", path=str(Path(sys.executable).parent)) or shutil.which("py-spy")
    if spy is None:
        raise SystemExit("profile: py-spy is not installed: `make` installs it into .venv")
    path.parent.mkdir(parents=True, exist_ok=True)
    path.unlink(missing_ok=True)
    command = [spy, "record", "--pid", str(pid), "--output", str(path), "--rate", str(_RATE), "--function"]
    process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
    try:
        yield
    finally:
        process.send_signal(signal.SIGINT)
        output, _ = process.communicate(timeout=_END_S)
    if not path.exists():
        raise SystemExit(f"profile: py-spy wrote no file, it may need root: {output.strip()}")
    # The title of the graph is the command; remove this machine's paths from it.
    path.write_text(path.read_text().replace(spy, "py-spy").replace(str(path), path.name))


def main() -> int:
    """Write a flame graph of a process."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.profile", description=main.__doc__)
    parser.add_argument("pid", type=int, metavar="PID")
    parser.add_argument("path", type=Path, metavar="FILE.svg")
    parser.add_argument("--seconds", type=float, default=10.0, help="how long; default 10")
    arguments = parser.parse_args()
    with recorded(arguments.pid, arguments.path):
        time.sleep(arguments.seconds)
    return 0


if __name__ == "__main__":
    sys.exit(main())
