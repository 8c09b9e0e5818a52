"""What is kept of the pods on a node."""

import msgspec

from agent.nri.pod_watch import Pod
from allocation.names import ALLOCATION


def test_only_the_allocation_of_a_pod_is_kept() -> None:
    """What users write into other annotations does not stay in the agent's memory."""
    for own in ({ALLOCATION: "{}"}, {}):
        sent = {"metadata": {"name": "a", "annotations": {**own, "notes": "x" * 100_000}}}
        assert msgspec.convert(sent, Pod).metadata.annotations == own
