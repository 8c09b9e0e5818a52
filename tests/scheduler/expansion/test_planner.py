"""Which nodes are asked for: as many as the waiting pods need, and none that would help no pod."""

from __future__ import annotations

import asyncio
from typing import Any

import msgspec
from hypothesis import given, settings
from hypothesis import strategies as st

from allocation.steps import finish
from scheduler.objects import Owner
from tests.scheduler.expansion.scene import POOL, TEMPLATE, Scene
from tests.scheduler.support.builders import allocated, pod
from tests.scheduler.support.driving import gpu_queue
from tests.scheduler.support.gang_driving import member
from tests.scheduler.support.quotas import gpu_quota
from tests.support.depth import repetitions


def named(made: Any, uid: str) -> Any:
    """Return a pod with another UID."""
    return msgspec.structs.replace(made, metadata=msgspec.structs.replace(made.metadata, uid=uid))


async def test_pods_share_the_node_that_is_asked_for() -> None:
    """Four halves of a card fit on the two cards of one new node; the fifth needs another one."""
    scene = Scene()
    scene.driver.add(*(pod(f"p{number}", memory=500) for number in range(4)))
    assert set((await scene.verdicts()).values()) == {"PreScheduled"}
    assert scene.asked == ["new-1"]
    scene.driver.add(pod("p4", memory=500))
    assert set((await scene.verdicts()).values()) == {"PreScheduled"}
    assert scene.asked == ["new-1", "new-2"]
    await scene.come_all()
    assert (await scene.look(), len(scene.driver.running), scene.asked) == ({}, 5, ["new-1", "new-2"])


async def test_a_group_is_known_from_its_nodes() -> None:
    """A full node is the template of the next one, without its pods, its cordon and its health."""
    scene = Scene("n1", templates=())
    scene.driver.add(*(allocated(f"r{card}", node="n1", memory=1000, card=card) for card in range(2)))
    scene.driver.add(pod("p", memory=1000))
    assert await scene.verdicts() == {"p": "PreScheduled"}
    (template,) = scene.planner.in_flight.templates.values()
    assert (template.cards, dict(template.selector)) == (2, {})


async def test_pods_of_daemon_sets_are_on_every_new_node() -> None:
    """What they use of a node of the group is not left for others."""
    scene = Scene("n1", templates=())
    daemon = allocated("daemon", node="n1", memory=1, containers=_whole(0, cpu="10"))
    daemon.metadata.owner_references = (Owner("DaemonSet", "uid-set", controller=True),)
    scene.driver.add(daemon, *(allocated(f"r{card}", node="n1", memory=900, card=card) for card in range(2)))
    scene.driver.add(pod("large", containers=_whole(1, cpu="55")), pod("small", containers=_whole(1, cpu="54")))
    assert await scene.verdicts() == {"large": "NonGPUIssue", "small": "PreScheduled"}


async def test_a_node_counts_instead_of_the_description_of_its_group() -> None:
    """The description may be wrong: once a node of the group exists, that is what comes."""
    scene = Scene(templates=({**TEMPLATE, "memory_mib": 5000},))
    scene.come("first")
    scene.driver.add(pod("p", memory=2000))
    assert (await scene.verdicts(), scene.asked) == ({"p": "NoGPUNodes"}, [])


async def test_pod_that_fits_on_a_node_that_exists_brings_none() -> None:
    """It is on its way there, and what others of its round take counts."""
    scene = Scene("n1")
    scene.driver.add(pod("p", memory=500))
    await scene.driver.settle()
    late = pod("late", memory=1000)
    scene.planner.begin(lambda _: True)
    assert [each.verdict for each in finish(scene.planner.decide((late,), 0.0))] == ["Schedulable"]
    other = pod("other", memory=1000)
    assert [each.verdict for each in finish(scene.planner.decide((other,), 0.0))] == ["PreScheduled"]


class Book:
    """First fit by card, without anything of the product: memory and slots of each card."""

    def __init__(self) -> None:
        self.nodes: list[list[list[int]]] = []

    def put(self, memory: int) -> None:
        """Put a slice on the fullest card that takes it, as binpack does, or on a new node."""
        fitting = [card for cards in self.nodes for card in cards if card[0] >= memory and card[1]]
        if not fitting:
            self.nodes.append([[1000, 4] for _ in range(8)])
            fitting = [self.nodes[-1][0]]
        card = min(fitting)
        card[0] -= memory
        card[1] -= 1


@settings(deadline=None, max_examples=repetitions(3, 100))
@given(st.lists(st.integers(50, 1000), min_size=100, max_size=100))
def test_as_many_nodes_are_asked_for_as_the_pods_need(sizes: list[int]) -> None:
    """Of 100 pods of random sizes, within one node; when these have come all pods have places, and no more are asked.

    No plan could need fewer than the memory does, and a simple book of first fit needs as many.
    """

    async def play() -> None:
        scene = Scene(templates=({**TEMPLATE, "cards": 8},))
        book = Book()
        scene.driver.add(*(pod(f"p{number:03}", memory=size) for number, size in enumerate(sizes)))
        verdicts = await scene.look()
        for each in verdicts.values():
            book.put(sizes[int(each.pod.metadata.name[1:])])
        assert -(-sum(sizes) // 8000) <= len(scene.asked)
        assert abs(len(scene.asked) - len(book.nodes)) <= 1
        for name in tuple(scene.planner.in_flight.templates):
            scene.come(name, cards=8)
        scene.settle()
        left = await scene.look()
        assert len(left) <= len(sizes) // 20, "almost all have places"
        assert len(scene.asked) <= len(book.nodes) + 1

    asyncio.run(play())


async def test_at_most_15_nodes_are_on_their_way() -> None:
    """Of 40 pods that need a node each; when some have come, as many are asked for again."""
    scene = Scene()
    scene.driver.add(*(pod(f"p{number:02}", containers=_whole(2)) for number in range(40)))
    looked = await scene.look()
    assert len(scene.asked) == 15
    assert sum(each.verdict == "Skipped" for each in looked.values()) == 25
    assert "15 nodes are on their way" in looked["p39"].note
    scene.come("new-3")
    scene.come("new-7")
    await scene.look()
    assert (len(scene.asked), len(scene.planner.in_flight)) == (17, 15)


async def test_pods_of_one_name_in_two_namespaces_are_two_pods() -> None:
    """Each gets a node."""
    scene = Scene()
    for space in ("one", "two"):
        scene.driver.add(named(pod("same", namespace=space, containers=_whole(2)), f"uid-{space}"))
    assert await scene.verdicts() == {"one/same": "PreScheduled", "two/same": "PreScheduled"}
    assert len(scene.asked) == 2


async def test_group_whose_cards_are_too_small_is_asked_for_no_node() -> None:
    """However much memory its cards have together."""
    scene = Scene("n1", templates=({**TEMPLATE, "cards": 8},))
    scene.driver.add(pod("large", memory=1001))
    looked = await scene.look()
    assert (looked["large"].verdict, scene.asked) == ("NoGPUNodes", [])
    assert "CardInsufficientMemory" in looked["large"].note


async def test_without_any_group_the_setting_is_named() -> None:
    """No node has cards, and the configuration names no group."""
    scene = Scene(templates=())
    scene.driver.add(pod("p", memory=1))
    looked = await scene.look()
    assert (looked["p"].verdict, scene.asked) == ("NoGPUNodes", [])
    assert "expander.templates" in looked["p"].note


async def test_other_needs_than_cards_are_distinguished() -> None:
    """Selectors, taints, CPU, and rules about other pods."""
    taint = {"key": "gpu", "effect": "NoSchedule"}
    scene = Scene(templates=({**TEMPLATE, "taints": [taint]},))
    tolerations = [{"key": "gpu", "operator": "Exists"}]
    near = {"podAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": [{"topologyKey": "zone"}]}}
    scene.driver.add(
        pod("intolerant", memory=1),
        pod("elsewhere", memory=1, tolerations=tolerations, nodeSelector={"pool": "other"}),
        pod("busy", tolerations=tolerations, containers=_whole(1, cpu="65")),
        pod("near", memory=1, tolerations=tolerations, affinity=near),
        pod("fine", memory=1, tolerations=tolerations, nodeSelector=POOL),
    )
    looked = await scene.look()
    assert {name: each.verdict for name, each in looked.items()} == {
        **dict.fromkeys(("intolerant", "elsewhere", "busy", "near"), "NonGPUIssue"),
        "fine": "PreScheduled",
    }
    assert "untolerated taint" in looked["intolerant"].note
    assert "Insufficient cpu" in looked["busy"].note


async def test_node_that_does_not_help_is_the_only_one() -> None:
    """Its cards are smaller than its group promises: a pause follows that doubles, and the reason says so."""
    scene = Scene()
    scene.driver.add(pod("p", memory=1000))
    await scene.look()
    for pause in (600.0, 1200.0):
        scene.come(scene.asked[-1], memory=900)
        assert "has come for it" in (await scene.look())["p"].note
        scene.settle()
        count = len(scene.asked)
        looked = (await scene.look())["p"]
        assert (looked.verdict, len(scene.asked)) == ("Failed", count)
        assert "CardInsufficientMemory" in looked.note
        scene.now += pause - 1
        assert (await scene.look())["p"].verdict == "Failed"
        scene.now += 1
        scene.driver.state.drop_node(scene.driver.state.node_cache.nodes[f"real-{scene.asked[-1]}"])
        assert (await scene.look())["p"].verdict == "PreScheduled"
        assert len(scene.asked) == count + 1


async def test_pods_of_another_shape_are_not_held_back() -> None:
    """By a node that did not help some: the others get one."""
    scene = Scene()
    scene.driver.add(pod("large", memory=1000))
    await scene.look()
    scene.planner.expired("new-1", scene.now)
    scene.driver.add(pod("small", memory=100))
    looked = await scene.look()
    assert {name: each.verdict for name, each in looked.items()} == {"large": "Failed", "small": "PreScheduled"}
    assert "no node came within 10 minutes" in looked["large"].note


async def test_node_whose_room_others_took_is_no_failure() -> None:
    """It takes the pod when it is empty, so another one is asked for."""
    scene = Scene()
    scene.driver.add(pod("slow", memory=1000))
    await scene.look()
    scene.come("new-1")
    scene.driver.add(*(allocated(f"fast{card}", node="real-new-1", memory=1000, card=card) for card in range(2)))
    await scene.look()
    scene.settle()
    assert (await scene.verdicts(), scene.asked) == ({"slow": "PreScheduled"}, ["new-1", "new-2"])


async def test_quotas_limit_how_many_nodes_are_asked_for() -> None:
    """Pods that are promised a place count: of 20 only as many get nodes as may run."""
    scene = Scene()
    scene.driver.state.limits.set_gpu_quota(gpu_quota(total={"maxPods": 2}))
    scene.driver.add(*(pod(f"p{number:02}", containers=_whole(2)) for number in range(20)))
    assert sorted((await scene.verdicts()).values()) == ["PreScheduled"] * 2 + ["Skipped"] * 18
    assert len(scene.asked) == 2


async def test_limits_of_a_queue_count_in_the_same_way() -> None:
    """Also those of memory, which count what is promised."""
    scene = Scene()
    scene.driver.state.limits.set_queue(gpu_queue("small", limits={"nvidia.com/gpumem": 800}))
    labels = {"gpu.scheduling/queue": "small"}
    scene.driver.add(*(pod(f"p{number}", memory=400, labels=labels) for number in range(4)))
    looked = await scene.look()
    assert sorted(each.verdict for each in looked.values()) == ["PreScheduled"] * 2 + ["Skipped"] * 2
    assert len(scene.asked) == 1


async def test_quota_of_one_namespace_does_not_bring_nodes_for_another() -> None:
    """A pod of the same shape, which may be placed, gets the room on the node that is on its way."""
    scene = Scene()
    scene.driver.state.limits.set_gpu_quota(gpu_quota(namespace="poor", total={"limits": {"nvidia.com/gpumem": 100}}))
    scene.driver.add(pod("seed", memory=250))
    await scene.look()
    scene.driver.add(pod("refused", memory=500, namespace="poor", priority=9), pod("taken", memory=500))
    looked = await scene.verdicts()
    assert looked == {"seed": "PreScheduled", "poor/refused": "Skipped", "taken": "PreScheduled"}
    assert scene.asked == ["new-1"]


async def test_rules_about_other_pods_are_those_of_each_pod() -> None:
    """Two pods that are alike but for their affinity are decided differently."""
    scene = Scene()
    near = {"podAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": [{"topologyKey": "zone"}]}}
    scene.driver.add(pod("near", memory=1, affinity=near), pod("plain", memory=1))
    assert await scene.verdicts() == {"near": "NonGPUIssue", "plain": "PreScheduled"}


async def test_pods_that_a_node_would_not_help_are_skipped() -> None:
    """Nominated, pinned to cards or a node, or held: nothing is asked for, and nothing said."""
    scene = Scene()
    scene.driver.add(
        pod("nominated", memory=1, status={"nominatedNodeName": "n1"}),
        pod("card", memory=1, annotations={"nvidia.com/use-gpuuuid": "GPU-x"}),
        pod("host", memory=1, nodeSelector={"kubernetes.io/hostname": "n9"}),
        pod("plain"),
    )
    assert set((await scene.verdicts()).values()) == {"Skipped"}
    assert scene.asked == []


async def test_gang_gets_nodes_for_all_its_pods_or_for_none() -> None:
    """What exists counts, so only what is missing is asked for; while pods are missing, nothing is."""
    scene = Scene("n1")
    scene.driver.add(member("m0", size=4), member("m1", size=4))
    assert (set((await scene.verdicts()).values()), scene.asked) == ({"Skipped"}, [])
    scene.driver.add(member("m2", size=4), member("m3", size=4))
    assert sorted((await scene.verdicts()).values()) == ["PreScheduled"] * 2 + ["Schedulable"] * 2
    assert scene.asked == ["new-1"]
    await scene.come_all()
    assert len(scene.driver.running) == 4


async def test_gang_of_which_one_pod_fits_nowhere_gets_nothing() -> None:
    """No node is asked for its other pods, and they take no room on one that is on its way."""
    scene = Scene()
    scene.driver.add(pod("seed", memory=1))
    await scene.look()
    scene.driver.add(member("m0", size=2), member("m1", size=2, memory=2000))
    looked = await scene.verdicts()
    assert (looked.pop("seed"), set(looked.values()), scene.asked) == ("PreScheduled", {"NoGPUNodes"}, ["new-1"])
    assert scene.planner.in_flight.promises.keys() == {"uid-seed"}


async def test_pods_that_are_gone_give_back_what_was_promised() -> None:
    """The next pod gets the place of one that was deleted."""
    scene = Scene()
    gone = pod("gone", containers=_whole(2))
    scene.driver.add(gone)
    await scene.look()
    scene.driver.state.drop_pod(gone)
    scene.driver.add(pod("next", containers=_whole(2)))
    assert (await scene.verdicts(), scene.asked) == ({"next": "PreScheduled"}, ["new-1"])


async def test_the_smallest_group_that_suffices_is_chosen() -> None:
    """By its number of cards, then by their memory."""
    large = {**TEMPLATE, "name": "large", "cards": 8, "labels": {"pool": "large"}}
    scene = Scene(templates=(large, TEMPLATE, {**TEMPLATE, "name": "tiny", "memory_mib": 10, "labels": {"pool": "t"}}))
    scene.driver.add(pod("small", memory=500), pod("wide", containers=_whole(3)))
    await scene.look()
    assert sorted(each.name for each in scene.planner.in_flight.templates.values()) == ["gpus", "large"]


def _whole(count: int, *, cpu: str = "1") -> list[dict[str, Any]]:
    """Return the containers of a pod that requests whole cards."""
    limits = {"nvidia.com/gpu": str(count), "cpu": cpu}
    return [{"name": "main", "resources": {"limits": limits, "requests": limits}}]
