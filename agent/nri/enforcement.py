"""What a container gets in addition to its cards, so that its isolation holds it to its limits: mounts, variables.

The node has the library of HAMi-core and the pipes of MPS; a pod that mounted them itself would need host paths. The
runtime also tells this plugin the whole environment of a container, with what its image and `envFrom` bring, which
admission cannot see.
"""

import os
import posixpath
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Final

import msgspec

from agent import isolation
from agent.nri.messages_pb2 import Mount
from agent.refusal import Refusal
from agent.settings import AgentSettings
from allocation import variables
from allocation.isolation import Isolation
from allocation.settings import CorePolicy
from allocation.variables import Ruling
from allocation.wire import environment

LIBRARY: Final = "/usr/local/vgpu/libvgpu.so"
"""Where a container has HAMi-core."""
PRELOAD: Final = "/etc/ld.so.preload"
"""The list of libraries that the dynamic linker loads into each program. `LD_PRELOAD` would be simpler, but belongs to
the user, and a process that is started with another environment, as by `sudo` or `env -i`, would have no limit."""
OVERRIDES: Final = "/overrideEnv"
"""The file by which HAMi-core replaces its variables; the container has an empty one that it cannot write."""
COUNTS: Final = "/tmp/vgpulock"  # noqa: S108 -- HAMi-core's own path
"""Where the processes of a container have HAMi-core's lock, and add up what they use. It is in the container's memory:
other containers neither see nor block it, and it goes with the container."""
_COUNTS_FILE: Final = f"{COUNTS}/cudevshr.cache"
PIPES: Final = "/tmp/nvidia-mps"  # noqa: S108 -- CUDA's default
"""Where a container has the pipes of MPS: also a process without variables finds them."""
SHARED_MEMORY: Final = "/dev/shm"  # noqa: S108 -- where programs look for it
"""The runtime has mounted something there already, which is replaced."""

_MEMORY: Final = ("nosuid", "nodev", "noexec", "mode=1777", "size=16m")


class Additions(msgspec.Struct, frozen=True):
    """What is added to a container; the variables replace those of the same name."""

    mounts: tuple[Mount, ...] = ()
    variables: Mapping[str, str] = {}


class Enforcement:
    """The means of this node to hold containers to their limits."""

    def __init__(self, settings: AgentSettings, *, core_policy: CorePolicy = "default") -> None:
        """Use the paths of the settings, which must be those of the host: the runtime mounts them.

        `core_policy` is what admission sets in containers, if it is not the default.
        """
        self._settings = settings
        self._constants = environment.constants(priority=None, core_policy=core_policy)

    def additions(self, chosen: Isolation, environ: Iterable[str], destinations: Iterable[str]) -> Additions:
        """Return what a container with cards gets.

        Args:
            chosen: the isolation of its pod.
            environ: its environment, each `NAME=value`.
            destinations: where it mounts something already.

        Raises:
            Refusal: nothing would hold it to its limits.
        """
        values = dict(entry.partition("=")[::2] for entry in environ)
        for name in environment.limiting(chosen):
            if not values.get(name):
                raise Refusal(f"its isolation {chosen} has no limit, because its variable {name} is empty")
        mounts, added = self._means(chosen)
        taken = {posixpath.normpath(each) for each in destinations} - {SHARED_MEMORY}
        for mount in mounts:
            if clash := next((each for each in taken if _is_within(each, mount.destination)), None):
                raise Refusal(f"its mount {clash} is where isolation {chosen} has {mount.destination}: remove it")
        # A plugin can set variables of a container, and not remove them.
        replaced = {name: self._constants.get(name, "") for name in values if _weakens(name, chosen)}
        return Additions(mounts, {**replaced, **added})

    def _means(self, chosen: Isolation) -> tuple[tuple[Mount, ...], dict[str, str]]:
        """Return the mounts and the variables of an isolation, if the node has them now."""
        settings = self._settings
        if chosen is Isolation.HAMI_CORE:
            _require(chosen, isolation.hami_core_problem(settings.hami_core_library))
            return self._hami_core(), {environment.COUNTS: _COUNTS_FILE}
        if chosen is Isolation.MPS:
            # A program that finds no daemon uses the card without it, and without a limit.
            _require(chosen, isolation.mps_problem(settings.mps_pipe_directory))
            mounts = [_bound(settings.mps_pipe_directory, PIPES, "ro", "noexec")]
            if settings.mps_shared_memory:
                mounts.append(_bound(settings.mps_shared_memory, SHARED_MEMORY, "rw", "noexec"))
            return tuple(mounts), {environment.MPS_PIPES: PIPES}
        return (), {}

    def _hami_core(self) -> tuple[Mount, ...]:
        folder = Path(self._settings.nri_files)
        try:
            preload = _written(folder / "ld.so.preload", f"{LIBRARY}\n")
            nothing = _written(folder / "empty", "")
        except OSError as error:
            raise Refusal(f"isolation {Isolation.HAMI_CORE}: {folder}: {error.strerror}") from None
        return (
            _bound(self._settings.hami_core_library, LIBRARY, "ro"),
            _bound(str(preload), PRELOAD, "ro"),
            _bound(str(nothing), OVERRIDES, "ro"),
            Mount(destination=COUNTS, type="tmpfs", source="tmpfs", options=_MEMORY),
        )


def _require(chosen: Isolation, problem: str) -> None:
    if problem:
        raise Refusal(f"isolation {chosen}: {problem}")


def _weakens(name: str, chosen: Isolation) -> bool:
    """Whether a container with cards may not have a value for a variable.

    NVIDIA's toolkit starts no container with an empty limit, and a wrong one would be that of its container alone.
    """
    ruling = variables.ruling(name)
    if ruling is Ruling.BY_ISOLATION:
        return name not in environment.of_isolation(chosen) + environment.of_isolation(Isolation.CUDA)
    return ruling is Ruling.REMOVED or name == environment.CORE_POLICY


def _is_within(path: str, folder: str) -> bool:
    return path == folder or path.startswith(f"{folder}/")


def _bound(source: str, destination: str, *options: str) -> Mount:
    return Mount(destination=destination, type="bind", source=source, options=("rbind", "nosuid", "nodev", *options))


def _written(path: Path, content: str) -> Path:
    """Return a file that all may read and that has this content, written again if it has another."""
    try:
        if path.read_text(encoding="utf-8") == content:
            return path
    except FileNotFoundError:
        path.parent.mkdir(parents=True, exist_ok=True)
    draft = path.with_name(f".{path.name}.{os.getpid()}")
    draft.write_text(content, encoding="utf-8")
    draft.chmod(0o644)
    draft.rename(path)
    return path
