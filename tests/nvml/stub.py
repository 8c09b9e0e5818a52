"""A stub of NVML for tests: a library with NVML's interface that reads the hardware from a file.

Child processes find it through `LD_LIBRARY_PATH`. The test process loads it beforehand; the dynamic linker then
resolves `libnvidia-ml.so.1` to the library that already has this name.
"""

import subprocess
from dataclasses import dataclass, field
from pathlib import Path

SOURCE = Path(__file__).with_name("libnvidia_ml.c")
NAME = "libnvidia-ml.so.1"
STATE = "NVML_STUB_STATE"
MIB = 2**20

GPU_IS_LOST = 15
DRIVER_NOT_LOADED = 9
NOT_SUPPORTED = 3
UNKNOWN = 999


def build(folder: Path) -> Path:
    """Compile the library into `folder` and return its path."""
    library = folder / NAME
    flags = ["-std=gnu11", "-Wall", "-Wextra", "-Werror", "-O1", "-shared", "-fPIC", f"-Wl,-soname,{NAME}"]
    subprocess.run(["cc", *flags, "-o", str(library), str(SOURCE)], check=True)
    return library


@dataclass
class StubCard:
    """A card of the stub; `lines` are further directives, which the C file describes."""

    uuid: str
    name: str = "NVIDIA H100 80GB HBM3"
    memory: int = 81559 * MIB
    pci: str = "00000000:18:00.0"
    numa: int = 0
    lines: list[str] = field(default_factory=list)

    def text(self) -> str:
        """Return the directives of the card."""
        own = [f"card {self.uuid}", f"name {self.name}", f"memory {self.memory}", f"pci {self.pci}"]
        return "\n".join([*own, f"numa {self.numa}", *self.lines])


def cards(count: int) -> list[StubCard]:
    """Return identical cards `GPU-0`, `GPU-1` and so on, with different PCI addresses."""
    return [StubCard(f"GPU-{index}", pci=f"00000000:{0x10 + index:02X}:00.0") for index in range(count)]


class Hardware:
    """The state file with the driver and the cards, which is rewritten on each change."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.cards: list[StubCard] = []
        self.driver = "570.86.15"
        self.lines: list[str] = []

    def has(self, *cards: StubCard) -> None:
        """Replace the cards."""
        self.cards = list(cards)
        self.write()

    def write(self) -> None:
        """Write the state file atomically, so that the stub never reads a part of it."""
        text = "\n".join([f"driver {self.driver}", *self.lines, *(card.text() for card in self.cards), ""])
        draft = self.path.with_suffix(".new")
        draft.write_text(text)
        draft.replace(self.path)


A100_MIG = (
    "mig 1",
    "profile 0 19 1 4864 1g.5gb",
    *(f"place 19 {start} 1" for start in range(7)),
    "profile 1 14 2 9856 2g.10gb",
    *(f"place 14 {start} 2" for start in (0, 2, 4)),
    "profile 2 9 3 19968 3g.20gb",
    "place 9 0 4",
    "place 9 4 4",
    "profile 4 0 7 40192 7g.40gb",
    "place 0 0 8",
    "profile 7 20 1 4864 1g.5gb+me",
    "place 20 0 1",
)
"""Directives of an A100 with 40 GB in MIG mode; the last profile is one with other engines."""


class MigInstances:
    """The MIG instances of the stub's cards."""

    def __init__(self, hardware: Hardware) -> None:
        self._path = hardware.path.with_name(hardware.path.name + ".instances")

    def has(self, *lines: str) -> None:
        """Replace the instances; a line is `CARD GPU_INSTANCE COMPUTE_INSTANCE PROFILE_ID START SIZE UUID`."""
        self._path.write_text("".join(f"{line}\n" for line in lines))

    def lines(self) -> list[str]:
        """Return the lines of the present instances."""
        return self._path.read_text().splitlines() if self._path.exists() else []
