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
