"""The stub of NVML for tests: compiled once, loaded as the real library is, told what to say by a file.

A process finds it by `LD_LIBRARY_PATH`. In the test process it is loaded beforehand: the dynamic linker then answers
`libnvidia-ml.so.1` with the library that already has this name.
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
    """Compile the library into `folder` and answer its path."""
    library = folder / NAME
    flags = ["-std=gnu11", "-Wall", "-Wextra", "-Werror", "-O1", "-shared", "-fPIC", f"-Wl,-soname,{NAME}"]
    subprocess.run(["cc", *flags, "-o", str(library), str(SOURCE)], check=True)
    return library


@dataclass
class StubCard:
    """A card as the stub shows it; `lines` are further directives, which the C file explains."""

    uuid: str
    name: str = "NVIDIA H100 80GB HBM3"
    memory: int = 81559 * MIB
    pci: str = "00000000:18:00.0"
    numa: int = 0
    lines: list[str] = field(default_factory=list)

    def text(self) -> str:
        """Answer its directives."""
        own = [f"card {self.uuid}", f"name {self.name}", f"memory {self.memory}", f"pci {self.pci}"]
        return "\n".join([*own, f"numa {self.numa}", *self.lines])


def cards(count: int) -> list[StubCard]:
    """Answer equal cards `GPU-0`, `GPU-1` and so on, each at a PCI address of its own."""
    return [StubCard(f"GPU-{index}", pci=f"00000000:{0x10 + index:02X}:00.0") for index in range(count)]


class Hardware:
    """The state file: the cards and the driver, written whole on each change."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.cards: list[StubCard] = []
        self.driver = "570.86.15"
        self.lines: list[str] = []

    def has(self, *cards: StubCard) -> None:
        """Have these cards from now on."""
        self.cards = list(cards)
        self.write()

    def write(self) -> None:
        """Show the stub the present state; it never sees half of it."""
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
"""Directives of an A100 with 40 GB in MIG mode; what it has beside the plain profiles is the last one."""


class MigInstances:
    """The MIG instances that the stub's cards have, whoever made them."""

    def __init__(self, hardware: Hardware) -> None:
        self._path = hardware.path.with_name(hardware.path.name + ".instances")

    def has(self, *lines: str) -> None:
        """Have these from now on: `CARD GPU_INSTANCE COMPUTE_INSTANCE PROFILE_ID START SIZE UUID`."""
        self._path.write_text("".join(f"{line}\n" for line in lines))

    def lines(self) -> list[str]:
        """Answer what there is."""
        return self._path.read_text().splitlines() if self._path.exists() else []
