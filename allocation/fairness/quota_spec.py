"""`spec` of a GpuQuota: what a namespace may have (docs/quotas.md)."""

from collections.abc import Mapping

import msgspec


class TotalQuota(msgspec.Struct, frozen=True, rename="camel"):
    """What all pods of the namespace may have together.

    Attributes:
        limits: the most that they may use, by resource in the units of a container; a missing one is unlimited, and 0
            allows nothing.
        requests: the most that they may request, where some may use more than they request.
        max_pods: the most pods with a node; None is unlimited.
        alert_threshold_percent: an alert is raised when less than 100 minus this percentage of a limit is left.
    """

    limits: Mapping[str, int] = {}
    requests: Mapping[str, int] = {}
    max_pods: int | None = None
    alert_threshold_percent: int = 95


class SingleQuota(msgspec.Struct, frozen=True, rename="camel"):
    """What one pod of the namespace may have.

    Attributes:
        limits: the most of each card that a container may request, by resource in the units of a container.
        max_cards: the most cards of a pod; None is unlimited.
        defaults: what a GPU container gets of each card where it requests neither memory nor cores.
    """

    limits: Mapping[str, int] = {}
    max_cards: int | None = None
    defaults: Mapping[str, int] = {}


class QuotaSpec(msgspec.Struct, frozen=True, rename="camel"):
    """What an administrator says of a namespace; several quotas of one namespace all hold."""

    total: TotalQuota = TotalQuota()
    single: SingleQuota = SingleQuota()
