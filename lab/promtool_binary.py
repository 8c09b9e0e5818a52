"""promtool, which evaluates alerts: given by `PROMTOOL`, cached, or built from the module in `lab/promtool`."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from lab.go_module import GoModule

if TYPE_CHECKING:
    from collections.abc import Callable

MODULE = GoModule(
    folder=Path(__file__).with_name("promtool"),
    requirement="github.com/prometheus/prometheus",
    packages={"promtool": "github.com/prometheus/prometheus/cmd/promtool"},
    stamps=lambda version: {"github.com/prometheus/common/version.Version": version},
    build_gib=2.0,  # measured: 1 GB of build cache and 0.2 GB of binary
    tags=("remove_all_sd",),  # the clients of all clouds; two minutes on two busy processors without them
)


def provide(*, report: Callable[[str], None] = print) -> Path:
    """Return the binary, and build it if it is neither given nor cached.

    Raises:
        LabError: Go or disk space is missing, or the build failed.
    """
    return MODULE.provide("promtool", report=report, given_by="PROMTOOL")
