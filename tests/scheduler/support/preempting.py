"""Whom pods would preempt, with the default settings."""

from typing import Any

from cluster.disruption_budget import PodDisruptionBudget
from scheduler.preemption.choice import Chooser
from scheduler.preemption.disruption_budgets import DisruptionBudgets
from scheduler.preemption.eligibility import Eligibility
from scheduler.settings import PreemptionSettings
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
