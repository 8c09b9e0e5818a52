"""Quotas and what is used of them, as the HTTP API returns them and the command line shows them."""

from typing import Literal

import msgspec

from scheduler.api.json_names import json_name


class LimitView(msgspec.Struct, frozen=True, rename=json_name):
    """One limit on what all pods of a namespace hold together.

    Attributes:
        resource: what is limited: a resource of a container, or `pods`.
        used: what the pods hold of it, in the units of a container, rounded up.
        limit: the most that they may hold.
        available_percent: what is left in percent, with two decimals, rounded down.
        nearly_full: whether less is left than the quota's threshold leaves; false for a ResourceQuota, which has none.
    """

    resource: str
    used: int
    limit: int
    available_percent: str
    nearly_full: bool = False


class SingleView(msgspec.Struct, frozen=True, rename=json_name):
    """What one pod may have.

    Attributes:
        limits: the most of each card that a container may request, by resource; a missing one is unlimited.
        max_cards: the most cards of a pod; None is unlimited.
        defaults: what a GPU container gets of each card where it requests neither memory nor cores.
    """

    limits: dict[str, int]
    max_cards: int | None
    defaults: dict[str, int]


class QuotaView(msgspec.Struct, frozen=True, rename=json_name):
    """One quota. All quotas of a namespace hold, so the one of which the least is left decides.

    Attributes:
        kind: `GpuQuota`, or `ResourceQuota`, of which the keys `limits.` of GPU resources count.
        namespace: of the quota and the pods that it limits.
        name: its name.
        pods: the pods of the namespace with a GPU and a node.
        limits: the limits on all pods together, by name; the others are unlimited.
        fullest: the resource of which the smallest part is left; empty without limits.
        alert_threshold_percent: the part of a limit beyond which it is nearly full; None for a ResourceQuota.
        single: what one pod may have; None for a ResourceQuota.
    """

    kind: Literal["GpuQuota", "ResourceQuota"]
    namespace: str
    name: str
    pods: int
    limits: tuple[LimitView, ...]
    fullest: str
    alert_threshold_percent: int | None = None
    single: SingleView | None = None


class QuotasView(msgspec.Struct, frozen=True, rename=json_name):
    """Quotas, by namespace; in each the GpuQuotas, then the ResourceQuotas that limit GPU resources."""

    quotas: tuple[QuotaView, ...]
