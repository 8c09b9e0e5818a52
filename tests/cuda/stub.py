"""A node without a GPU on which containers allocate memory: stubs of CUDA's driver, of HAMi-core and of the toolkit.

What this shows: which limit a process under the environment of a container meets, and which of the stubs refuses it.
What it cannot show: that the driver, MPS, HAMi-core or NVIDIA's toolkit behave as the stubs do. The stubs follow what
their documentation and their source say, as docs/limits.md cites it; `tests.cuda.real` has the real ones.
"""

from collections.abc import Mapping, Sequence
from pathlib import Path

from tests.cuda.programs import Container, NotStartedError, Programs

_REQUEST, _LIMIT = "NVIDIA_GPU_MEMORY_REQUEST", "NVIDIA_GPU_MEMORY_LIMIT"


class Node:
    """A node with cards, and NVIDIA's container runtime.

    Attributes:
        cards: the MiB of each card by UUID, in the order of the node.
        state: the folder in which its processes count what they use.
        slack_mib: CUDA itself takes nothing of a limit.
    """

    slack_mib = 0

    def __init__(
        self, programs: Programs, state: Path, cards: Mapping[str, int], *, has_limits: bool = False, mps: bool = False
    ) -> None:
        """Describe its cards; with `has_limits` driver and toolkit can limit, with `mps` a daemon runs."""
        self.cards, self.state = cards, state
        self._programs = programs
        self._has_limits = has_limits
        self._mps = mps
        self._containers: dict[str, Container] = {}
        if mps:
            (state / "control").touch()

    def start(self, name: str, environment: Mapping[str, str], *, preload: bool = False) -> Container:
        """Start a container, as NVIDIA's runtime does by its environment; `preload` loads HAMi-core.

        Raises:
            NotStartedError: NVIDIA's toolkit cannot set the limits that the environment asks for.
        """
        if name in self._containers:
            self.remove(name)
        self._set_limits(name, environment)
        given = {card: self.cards[card] for card in self._visible(environment["NVIDIA_VISIBLE_DEVICES"])}
        own = {
            "STUB_CARDS": ",".join(f"{card}:{given[card]}" for card in self.cards if card in given),
            "STUB_STATE": str(self.state),
            "STUB_CGROUP": name,
            "CUDA_MPS_PIPE_DIRECTORY": str(self.state if self._mps else self.state / "no-daemon"),
        }
        if preload:
            own["LD_PRELOAD"] = str(self._programs.limiter)
        values = {**own, **environment, "LD_LIBRARY_PATH": str(self._programs.driver)}
        self._containers[name] = container = Container((str(self._programs.probe),), values, step_mib=500)
        return container

    def remove(self, name: str) -> None:
        """End a container; its control group goes, and with it the limit."""
        self._containers.pop(name).end()
        (self.state / f"limit.{name}").unlink(missing_ok=True)

    def leftovers(self) -> Sequence[str]:
        """Return what containers have left behind."""
        return sorted(path.name for path in self.state.iterdir() if path.name not in ("lock", "control"))

    def _visible(self, names: str) -> list[str]:
        """Return the cards of `NVIDIA_VISIBLE_DEVICES`, bare or as CDI names."""
        return [] if names in ("", "void") else [name.rpartition("=")[2] for name in names.split(",")]

    def _set_limits(self, name: str, environment: Mapping[str, str]) -> None:
        """Do what the hook apply-cuda-memory-limits does: nothing without its variables, else all or no container."""
        if _REQUEST not in environment and _LIMIT not in environment:
            return
        request, limit = environment.get(_REQUEST, ""), environment.get(_LIMIT, "")
        if not self._has_limits:
            raise NotStartedError("the driver of the node does not limit memory")
        if not (request.isdecimal() and limit.isdecimal() and 0 < int(request) <= int(limit)):
            raise NotStartedError(f"{_REQUEST}={request!r} and {_LIMIT}={limit!r} are not two amounts in MiB")
        (self.state / f"limit.{name}").write_text(limit)
