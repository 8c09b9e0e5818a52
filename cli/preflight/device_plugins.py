"""Findings about device plugins on nodes with and without our agent."""

from collections.abc import Iterable, Iterator
from typing import Final

from cli.preflight.findings import Finding
from cli.preflight.observed_node import ObservedNode

START_AGENT: Final = "start Tranche's agent there: docs/hami.md"
_DRAIN: Final = "take the node out of plugin mode: cordon, drain, make the kubelet forget (docs/hami.md)"
_ENVIRONMENT: Final = "envvar"
_MIG_STRATEGY: Final = "nvidia.com/mig.strategy"


def with_agent(observed: ObservedNode) -> Iterator[Finding]:
    """Return the findings about device plugins on a node that our agent reports."""
    if "HAMi's" in observed.plugins:
        yield observed.finding(
            "blocks",
            "HAMi's device plugin and Tranche's agent both run there and both write the node's register annotation",
            "remove one of them: docs/hami.md",
        )
    if observed.is_served_by_agent:
        return  # its delivery says whether that works
    if observed.advertised == 0:
        yield remembered(observed)
    elif _hands_out_instances(observed):
        strategy = observed.labels.get(_MIG_STRATEGY)
        yield observed.finding(
            "blocks",
            f"its device plugin hands out MIG instances{f' ({_MIG_STRATEGY}={strategy})' if strategy else ''}, which"
            " Tranche's agent reports as well: two pods may get the same instance",
            _no_plugin(observed),
        )
    elif observed.advertised is not None:
        yield from _advertised(observed)


def _hands_out_instances(observed: ObservedNode) -> bool:
    """Whether a device plugin serves MIG instances: as resources of their own, or as `nvidia.com/gpu`."""
    inventory = observed.inventory
    return bool(observed.mig_resources) or (
        bool(observed.advertised)
        and observed.labels.get(_MIG_STRATEGY) == "single"
        and any(card.is_mig_enabled for card in (inventory.cards if inventory is not None else ()))
    )


def _advertised(observed: ObservedNode) -> Iterator[Finding]:
    """Return the findings about a plugin that advertises cards."""
    inventory, strategies = observed.inventory, observed.software.device_list_strategies
    shares = sum(card.slots for card in inventory.cards) if inventory is not None else 0
    if others := [each for each in strategies or () if each != _ENVIRONMENT]:
        yield observed.finding(
            "blocks",
            f"its device plugin passes devices by {','.join(others)} (DEVICE_LIST_STRATEGY), which adds cards to those"
            " of a pod's allocation: containers see cards of other pods",
            _no_plugin(observed),
        )
    if observed.advertised is not None and observed.advertised < shares:
        yield observed.finding(
            "changes",
            f"its device plugin advertises {observed.advertised} {observed.resource}, but its cards have {shares}"
            f" slots: no more than {observed.advertised} shares are placed",
            f"raise the plugin's time-slicing replicas, or {_no_plugin(observed)}",
        )
    elif strategies is not None and not others:
        yield observed.finding(
            "notes", "its device plugin advertises enough, passes devices by environment variable, and may stay"
        )
    elif strategies is None:
        yield observed.finding(
            "notes",
            "its device plugin advertises enough and may stay",
            f"check that it passes devices by environment variable (DEVICE_LIST_STRATEGY=envvar), or"
            f" {_no_plugin(observed)}",
        )


def without_agent(observed: ObservedNode) -> Iterator[Finding]:
    """Return the findings about a node without our agent that HAMi's plugin did not register."""
    if observed.advertised:
        yield observed.finding(
            "changes",
            f"a device plugin advertises {observed.advertised} {observed.resource}, but no agent reports cards:"
            " Tranche places no pod there",
            START_AGENT,
        )
    elif observed.advertised == 0:
        yield remembered(observed)
    elif observed.plugins:
        yield observed.finding("changes", "a device plugin runs there, but its kubelet advertises nothing", START_AGENT)
    elif not observed.mig_resources:
        yield observed.finding("notes", "its labels say that it has GPUs, but no agent reports any", START_AGENT)


def managed_instances(observed: ObservedNode) -> Iterator[Finding]:
    """Return the finding about MIG instances that a device plugin manages on a node without our agent."""
    if resources := observed.mig_resources:
        yield observed.finding(
            "blocks",
            f"a device plugin manages MIG instances there: it advertises {', '.join(resources)}",
            drain(observed),
        )


def managed_cards(observed: ObservedNode) -> Iterable[Finding]:
    """Return the finding about cards in MIG mode that a device plugin manages."""
    inventory = observed.inventory
    cards = [
        card.uuid
        for card in (inventory.cards if inventory is not None else ())
        if card.is_mig_enabled and card.instances_by == "plugin"
    ]
    if cards:
        yield observed.finding(
            "changes",
            f"a device plugin manages cards in MIG mode, which are left out: {', '.join(cards)}",
            "leave them to HAMi until the node is drained (docs/agent.md#mig)",
        )


def remembered(observed: ObservedNode) -> Finding:
    """Return the finding about a kubelet that remembers a device plugin which has left."""
    what = f"its kubelet remembers a device plugin: {observed.resource} is 0"
    return observed.finding("blocks", what, drain(observed))


def drain(observed: ObservedNode) -> str:
    """Return the step that takes a node out of plugin mode, with the number of pods that it moves."""
    return f"{_DRAIN}; {observed.holders} GPU pods are there" if observed.holders else _DRAIN


def _no_plugin(observed: ObservedNode) -> str:
    return (
        "take the node out of plugin mode (docs/hami.md; GPU Operator: --set devicePlugin.enabled=false, or for this"
        f" node kubectl label node {observed.name} nvidia.com/gpu.deploy.device-plugin=false --overwrite)"
    )
