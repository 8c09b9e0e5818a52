"""The scheduler's state as `kubectl gpu` reads it counts by the settings of the scheduler."""

import pytest

from allocation.constraints import read_constraints
from cli.explain import scheduler_state
from cli.installation.rules import Rules
from scheduler.settings import ScoreWeights
from tests.scheduler.support.builders import pod


@pytest.mark.parametrize("extender", [False, True])
def test_stranded_cards_count_as_they_are_weighed(extender: bool) -> None:  # noqa: FBT001
    """In either mode."""
    for stranded in (0, 300):
        rules = Rules(weights=ScoreWeights(stranded=stranded), extender=extender)
        workload = scheduler_state.empty(rules, lambda: 0.0).workload
        cost = workload.of(pod("p", memory=100), read_constraints({}, rules.allocation))
        assert (cost is not None) == bool(stranded)
