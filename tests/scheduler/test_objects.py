"""What of a pod is kept while it lives: nothing that no decision reads, and once what is said twice."""

import msgspec

from allocation.names import ALLOCATION, HAMI_BIND_PHASE, environment_key
from scheduler.objects import Pod
from tests.scheduler.builders import pod


def test_the_environment_is_not_kept() -> None:
    """It is longer than all else; whatever a decision may read is."""
    kept = {ALLOCATION: "{}", HAMI_BIND_PHASE: "allocating", "hami.io/node-scheduler-policy": "spread"}
    environment = {environment_key("cuda-visible-devices", "main"): "GPU-1"}
    assert pod("a", annotations={**environment, **kept}).metadata.annotations == kept


def test_what_pods_have_in_common_is_kept_once() -> None:
    """Requests that equal limits, and the tolerations that admission adds to every pod."""
    made = pod("a", memory=1, tolerations=[{"key": "node.kubernetes.io/not-ready", "operator": "Exists"}])
    other = msgspec.json.decode(msgspec.json.encode(made), type=Pod)
    (container,) = other.spec.containers
    assert container.resources.requests is container.resources.limits
    assert other.spec.tolerations is made.spec.tolerations
