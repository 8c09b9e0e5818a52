"""Wall clock skew: a separate offset for each process, while monotonic clocks stay right."""

import subprocess
from pathlib import Path

from lab.errors import LabError

_SOURCE = Path(__file__).with_suffix(".c")
_BYTES = 8


class Clocks:
    """The wall clocks of processes, by process name."""

    def __init__(self, folder: Path) -> None:
        """Keep in `folder` the library that processes load and the offsets that they read.

        Raises:
            LabError: no C compiler is installed.
        """
        self._folder = folder
        folder.mkdir(parents=True, exist_ok=True)
        self._library = folder / "clock.so"
        command = ["cc", "-std=gnu11", "-Wall", "-Wextra", "-Werror", "-O1", "-shared", "-fPIC"]
        try:
            subprocess.run([*command, "-o", str(self._library), str(_SOURCE)], check=True)
        except FileNotFoundError as error:
            raise LabError(
                "clock skew", why="no C compiler is installed", remedy="apt-get install gcc libc6-dev"
            ) from error

    def env(self, name: str) -> dict[str, str]:
        """Return the environment variables to start a process with."""
        self.put(name, 0.0)
        return {"LD_PRELOAD": str(self._library), "CHAOS_CLOCK": str(self._file(name))}

    def put(self, name: str, seconds: float) -> None:
        """Shift the wall clock of a process by `seconds` from now on."""
        content = round(seconds * 1e9).to_bytes(_BYTES, "little", signed=True)
        if self._file(name).exists():
            with self._file(name).open("r+b") as file:  # in place: the process has mapped the file
                file.write(content)
        else:
            self._file(name).write_bytes(content)

    def _file(self, name: str) -> Path:
        return self._folder / name
