"""The expander, `--with-node` and the extender's answer about node templates decide alike about the same new node."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any

import msgspec
from hypothesis import given, settings
from hypothesis import strategies as st

from allocation.names import HAMI_REGISTER
from allocation.steps import finish
from allocation.wire import hami
from cli.explain import added_nodes
from cli.explain.addition import Addition
from scheduler.cycle.result import Scheduled
from scheduler.expander_settings import TemplateSettings
from scheduler.expansion import template
from scheduler.extender import filtering, wire
from tests.cli.support.sessions import session_on
from tests.scheduler.expansion.scene import POOL, TEMPLATE, Scene
from tests.scheduler.support.builders import pod, state
from tests.scheduler.support.scheduling import cycle_of
from tests.support.depth import repetitions

if TYPE_CHECKING:
    from cli.kube.session import Session
    from scheduler.objects import Pod

GROUPS = st.fixed_dictionaries({"cards": st.integers(1, 4), "memory_mib": st.integers(1, 2000)})
REQUESTS = st.fixed_dictionaries(
    {
        "nvidia.com/gpu": st.integers(1, 5).map(str),
        "nvidia.com/gpumem": st.integers(1, 2000).map(str),
        "nvidia.com/gpucores": st.integers(0, 100).map(str),
    }
)


def test_all_who_decide_about_a_new_node_agree() -> None:
    """A node is asked for exactly if simulations with one more such node, and `/filter` about it, take the pod."""
    with session_on({}) as (session, _):
        decide = settings(deadline=None, max_examples=repetitions(20, 500))(given(GROUPS, REQUESTS)(_agree))
        decide(session)


def _agree(session: Session, shape: dict[str, int], limits: dict[str, str]) -> None:
    given_ = {**TEMPLATE, **shape}
    containers = [{"name": "main", "resources": {"limits": limits, "requests": limits}}]
    asking = pod("p", containers=containers)
    scene = Scene(templates=(given_,))
    scene.driver.add(asking)
    decided = asyncio.run(scene.look())["p"].verdict == "PreScheduled"
    group = msgspec.convert(given_, TemplateSettings)
    assert decided == _simulated(session, group, asking) == _filtered(group, asking)


def _simulated(session: Session, group: TemplateSettings, asking: Pod) -> bool:
    """Whether `--with-node` finds a place."""
    made = state()
    added_nodes.add(session, made, Addition(group.name, 1), groups=(group,))
    made.set_pod(asking)
    return isinstance(finish(cycle_of(made).schedule(asking)), Scheduled)


def _filtered(group: TemplateSettings, asking: Pod) -> bool:
    """Whether the extender takes the pod on a template of an autoscaler."""
    _, inventory = template.configured(group).named("new")
    metadata: dict[str, Any] = {"name": "new", "annotations": {HAMI_REGISTER: hami.encode_register(inventory)}}
    body = msgspec.json.encode({"pod": asking, "nodes": {"items": [{"metadata": {**metadata, "labels": POOL}}]}})
    answer = finish(filtering.filter_(state(has_queue=False), wire.decode_args(body)))
    return answer.nodes is not None and bool(answer.nodes.items)
