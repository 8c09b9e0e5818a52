"""What a GpuClaim gives, read from the object as the API server shows it. This shares no code with the scheduler."""

from typing import Any, NamedTuple

from chaos.share import Mark, Request

ANNOTATION = "gpu.scheduling/claim"
_MILLI_PER_PERCENT = 10


class Claim(NamedTuple):
    """A GpuClaim: how many cards each pod that names it gets, and what of each; cores in millicards.

    Memory is None for all memory of an Exclusive card. Of MIG instances only the number is checked.
    """

    mark: Mark
    cards: int
    memory_mib: int | None
    cores: int

    def request(self, container: str) -> Request:
        """Return what each GPU container of a pod gets, which are the same cards for all of them."""
        return Request(container, self.cards, self.memory_mib, None, self.cores)


def read(content: dict[str, Any]) -> Claim:
    """Return what a GpuClaim gives."""
    devices = content["spec"]["devices"]
    mark = Mark(content["metadata"]["name"], devices.get("exclusivity", "Exclusive"))
    if mark.exclusivity == "Exclusive":
        return Claim(mark, devices["count"], None, 1000)
    return Claim(mark, devices["count"], devices.get("memoryMiB", 0), _MILLI_PER_PERCENT * devices.get("cores", 0))
