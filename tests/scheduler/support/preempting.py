"""Whom pods would preempt, and which pods would be moved, with the default settings."""

from typing import Any

from cluster.disruption_budget import PodDisruptionBudget
from scheduler.api.evictions import Evictions
from scheduler.consolidation.movable import Movable
from scheduler.consolidation.planner import Planner
from scheduler.preemption.choice import Chooser
from scheduler.preemption.disruption_budgets import DisruptionBudgets
from scheduler.preemption.eligibility import Eligibility
from scheduler.settings import ConsolidationSettings, PreemptionSettings
from scheduler.state.cluster_state import ClusterState

HOUR = 3600.0
NOW = 1767225600.0 + HOUR
"""An hour after the pods of `builders` are created."""


def chooser_of(state: ClusterState, *budgets: PodDisruptionBudget, now: float = NOW, **settings: Any) -> Chooser:
    """Return a chooser for a state; `settings` are those of preemption."""
    known = DisruptionBudgets()
    for each in budgets:
        known.set(each)
    rules = Eligibility(state, budgets=known, settings=PreemptionSettings(**settings), unix=lambda: now)
    return Chooser(state, rules)


def movable_of(state: ClusterState, *budgets: PodDisruptionBudget, now: float = NOW, **settings: Any) -> Movable:
    """Return which pods of a state may be moved; `settings` are those of consolidation."""
    known = DisruptionBudgets()
    for each in budgets:
        known.set(each)
    chosen = ConsolidationSettings(**settings)
    return Movable(state, budgets=known, settings=chosen, preemption=PreemptionSettings(), unix=lambda: now)


def planner_of(state: ClusterState, *budgets: PodDisruptionBudget, **settings: Any) -> Planner:
    """Return a planner for a state; `settings` are those of consolidation."""
    return Planner(state, movable_of(state, *budgets, **settings))


def evictions_of(state: ClusterState) -> Evictions:
    """Return what decides about evictions in a state, with the default settings."""
    return Evictions(chooser_of(state), planner_of(state) if state.has_queue else None)
