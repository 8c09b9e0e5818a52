"""Everything on at once: claims, bindings, queues, quotas, preemption, gates, MIG, volumes and more, in any order.

The invariants are those of docs/threat-model and of the pages of the features; the books are apart from the product.
Each module beside this one has the rules of a feature, and what must hold of it after each step.
"""

from __future__ import annotations

import pytest
from hypothesis import Phase, settings

from tests.scheduler.model.capacities import Capacities
from tests.scheduler.model.claims import Claims
from tests.scheduler.model.explanations import Explanations
from tests.scheduler.model.gangs import Gangs
from tests.scheduler.model.gates import Gates
from tests.scheduler.model.instances import Instances
from tests.scheduler.model.patience import PatienceRule
from tests.scheduler.model.resizes import Resizes
from tests.scheduler.model.restarts import Restarts
from tests.scheduler.model.static_allocation import StaticAllocations
from tests.scheduler.model.volumes import Volumes
from tests.support.depth import DEEP

pytestmark = pytest.mark.long


class Combinations(
    Gangs,
    Gates,
    Claims,
    StaticAllocations,
    Instances,
    Volumes,
    PatienceRule,
    Restarts,
    Explanations,
    Capacities,
    Resizes,
):
    """A small cluster with everything on."""


# To shorten the steps to a failure takes minutes, so that is left to `make test-deep`.
_PHASES = tuple(Phase) if DEEP else (Phase.explicit, Phase.reuse, Phase.generate)
Combinations.TestCase.settings = settings(
    max_examples=1000 if DEEP else 80, stateful_step_count=80 if DEEP else 50, phases=_PHASES, deadline=None
)
TestCombinations = Combinations.TestCase
