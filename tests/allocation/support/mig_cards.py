"""Cards in MIG mode for tests: an A100 with 40 GB, as NVIDIA's MIG user guide describes it."""

from allocation.inventory import Card
from allocation.mig import Creator, MigInstance, MigProfile, Slices


def _profile(name: str, memory_mib: int, slices: int, *placements: tuple[int, int]) -> MigProfile:
    return MigProfile(name, memory_mib, slices * 1000 // 7, slices, tuple(Slices(*each) for each in placements))


A100_PROFILES = (
    _profile("1g.5gb", 4864, 1, *((start, 1) for start in range(7))),
    _profile("2g.10gb", 9856, 2, (0, 2), (2, 2), (4, 2)),
    _profile("3g.20gb", 19968, 3, (0, 4), (4, 4)),
    _profile("4g.20gb", 19968, 4, (0, 4)),
    _profile("7g.40gb", 40192, 7, (0, 8)),
)
MODEL = "NVIDIA A100-SXM4-40GB"


def mig_card(index: int, *, node: str = "n0", healthy: bool = True, by: Creator = "administrator") -> Card:
    """Return a physical card in MIG mode."""
    return Card(
        f"GPU-{node}-{index}",
        index,
        40960,
        slots=7,
        model=MODEL,
        mode="mig",
        healthy=healthy,
        mig_profiles=A100_PROFILES,
        instances_by=by,
    )


def instance(index: int, name: str, start: int, *, node: str = "n0", request_id: str = "", placed: bool = True) -> Card:
    """Return an instance of the card with that index, at slice `start`; without `placed` its slices are unknown."""
    profile = next(each for each in A100_PROFILES if each.name == name)
    slices = next(each for each in profile.placements if each.start == start)
    mig_instance = MigInstance(f"GPU-{node}-{index}", name, slices, start + 1, 0, request_id)
    return Card(
        f"MIG-{node}-{index}-{start}",
        index,
        profile.memory_mib,
        profile.cores,
        slots=1,
        model=f"{MODEL} MIG {name}",
        mode="mig",
        instance=mig_instance if placed else MigInstance(f"GPU-{node}-{index}", name),
    )


def shared(index: int, *, node: str = "n0") -> Card:
    """Return a card that pods share."""
    return Card(f"GPU-{node}-{index}", index, 40960, model=MODEL)
