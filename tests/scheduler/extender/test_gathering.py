"""Gangs behind kube-scheduler: `/bind` is a barrier, one gang gathers at a time, and nothing is kept for long."""

import asyncio
import math
from contextlib import suppress

import msgspec
import pytest

from scheduler.extender import gang_rehearsals, preemption_wire
from scheduler.extender.wire import Args, decode_args
from scheduler.gangs.gang import Gang
from scheduler.metrics.labels import GangOutcome
from scheduler.preemption.waiting_pod import WaitingPod
from scheduler.settings import GangSettings
from tests.scheduler.support.builders import allocated, node, pod, status
from tests.scheduler.support.claims import claim, container
from tests.scheduler.support.extending import delete
from tests.scheduler.support.gangs import of_gang
from tests.scheduler.support.gathering import Scene, member, settle


@pytest.fixture(autouse=True)
def _unhurried(monkeypatch: pytest.MonkeyPatch) -> None:
    """However slow the machine is, no rehearsal takes too long."""
    monkeypatch.setattr(gang_rehearsals, "_BUDGET_SECONDS", math.inf)


async def test_pods_of_a_gang_are_bound_together() -> None:
    """Three wait in `/bind` with their cards reserved, and nothing is written; the fourth has all bound."""
    scene = Scene("n1", "n2")
    names = scene.gang("train")
    tasks = await scene.bring(*names[:3])
    assert scene.reserved == {f"uid-train{index}" for index in range(3)}
    assert not any(task.done() for task in tasks)
    assert scene.api.rehearsed == []
    tasks += await scene.bring(names[3])
    assert await asyncio.gather(*tasks) == ["", "", "", ""]
    assert scene.api.bound.keys() == set(names)
    assert sorted(scene.api.rehearsed) == names


async def test_gang_that_does_not_gather_in_time_holds_nothing_afterwards() -> None:
    """The first three get errors after 20 s; the gang backs off for 10 s, and its pods are tried again then."""
    scene = Scene("n1", "n2")
    names = scene.gang("train")
    tasks = await scene.bring(*names[:3])
    await scene.look(19.9)
    assert not any(task.done() for task in tasks)
    await scene.look(0.2)
    errors = await asyncio.gather(*tasks)
    assert all("has not gathered in 20 s: 3 of 4 pods came to nodes" in error for error in errors)
    assert scene.reserved == set()
    assert await scene.why("train0") == "gang default/train backs off"
    assert await scene.bind("train0", "n1") == "pod default/train0: gang default/train backs off"
    await scene.look(9.8)
    assert scene.woken == set()
    await scene.look(0.3)
    assert scene.woken == {"train0"}
    assert await scene.why("train0") == ""


async def test_outcomes_of_gangs_are_counted() -> None:
    """Rejected by a rehearsal, refused because it did not gather, and bound."""
    scene = Scene("n1", cards=3)
    scene.gang("large")
    await scene.why("large0")
    scene.gang("train", 2, size=2)
    await scene.bring("train0")
    await scene.look(20.5)
    await scene.look(10.5)
    await asyncio.gather(*await scene.bring("train0", "train1"))
    outcomes = scene.extender._metrics.gang_outcomes
    counts = {each.value: outcomes.labels(each.value)._value.get() for each in GangOutcome}
    assert counts == {"bound": 1, "refused": 1, "rejected": 1, "timed_out": 0}


async def test_gang_with_too_few_pods_waits_for_them() -> None:
    """Its pods are tried again as soon as the last one exists."""
    scene = Scene("n1", "n2")
    scene.gang("train", 3)
    assert await scene.why("train0") == "gang default/train needs 4 pods, and fewer exist: create the others"
    await scene.look()
    assert scene.woken == set()
    scene.create(member("train3", "train"))
    await scene.look()
    assert scene.woken == {"train0"}


async def test_last_pod_of_a_gang_has_the_others_tried_again() -> None:
    """As soon as its gang gathers: the others were rejected before there were enough."""
    scene = Scene("n1", "n2")
    for name in scene.gang("train", 3):
        assert await scene.why(name) != ""
    scene.create(member("train3", "train"))
    assert await scene.why("train3") == ""
    assert scene.woken == {"train0", "train1", "train2"}


async def test_gang_that_fits_nowhere_as_a_whole_never_gathers() -> None:
    """Three of four fit: none comes to a node, and the reason says so. Where a card comes, all are tried again."""
    scene = Scene("n1", cards=3)
    scene.gang("train")
    why = await scene.why("train0")
    assert why.startswith("3 of the 4 pods that gang default/train needs have a place; pod default/train3: ")
    assert scene.reserved == set()
    scene.state.set_node(node("n2"))
    scene.state.agent_reports.set(status("n2", cards=1))
    scene.extender._rejected.note_change()
    assert scene.woken == {"train0"}
    await scene.look()
    assert scene.woken == {"train0"}
    assert await scene.why("train0") == ""


async def test_gang_that_fits_nowhere_is_not_rehearsed_until_something_changes() -> None:
    """Not by its other pods, and not as time passes."""
    scene = Scene("n1", cards=3)
    names = scene.gang("train")
    await scene.why(names[0])
    before = scene.state.ledger.changes.state
    for name in names:
        assert await scene.why(name) != ""
        await scene.look(1.0)
    assert scene.state.ledger.changes.state == before
    scene.extender._rejected.note_change()
    await scene.look()
    assert scene.state.ledger.changes.state != before


async def test_each_pod_is_offered_the_node_on_which_all_fit() -> None:
    """A pod of half a card would be put anywhere, and the others would not fit; kube-scheduler is given one node."""
    scene = Scene("n1", "n2", cards=1)
    scene.create(
        member("a", "train", size=3, memory=1000),
        member("b", "train", size=3, memory=500),
        member("c", "train", size=3, memory=500),
    )
    offered = {}
    for name in ("b", "c", "a"):
        result = await scene.filter(name)
        (offered[name],) = result.nodenames or ()
        assert set(result.failed_nodes.values()) == {"the pod's gang fits with the pod on another node"}
        scene.bind(name, offered[name])
        await settle()
    assert offered["b"] == offered["c"] != offered["a"]
    assert scene.api.bound == offered


async def test_pod_whose_place_is_taken_may_go_to_any_other_node() -> None:
    """Another pod has the card meanwhile, or kube-scheduler does not offer the node."""
    scene = Scene("n1", "n2", "n3", cards=1)
    first, second = scene.gang("train", 2, size=2)
    await scene.bring(first)
    (planned,) = (await scene.filter(second)).nodenames or ()
    scene.state.set_pod(allocated("other", node=planned, memory=1000))
    (other,) = (await scene.filter(second)).nodenames or ()
    assert other != planned


async def test_gang_stays_in_its_block() -> None:
    """Also pods that come later, and those that cannot have the node that was planned."""
    scene = Scene()
    scene.nodes = ("a1", "b1", "b2")
    for name in scene.nodes:
        scene.state.set_node(node(name, metadata={"name": name, "labels": {"zone": name[0]}}))
        scene.state.agent_reports.set(status(name, cards=2))
    block = {"gang-block": "zone"}
    scene.create(*(member(f"m{index}", "train", size=3, **block) for index in range(3)))
    tasks = await scene.bring("m0", "m1", "m2")
    assert await asyncio.gather(*tasks) == ["", "", ""]
    assert {name[0] for name in scene.api.bound.values()} == {"b"}
    scene.create(member("late", "train", size=3, **block))
    result = await scene.filter("late")
    assert result.nodenames is not None
    assert {name[0] for name in result.nodenames} == {"b"}
    assert "zone=b" in result.failed_and_unresolvable_nodes["a1"]


async def test_of_two_gangs_on_six_cards_one_gathers() -> None:
    """Their pods come in turn: all of the first are bound, and none of the second has anything reserved."""
    scene = Scene("n1", "n2", cards=3)
    a, b = scene.gang("a"), scene.gang("b")
    tasks = []
    for index in range(4):
        tasks += await scene.bring(a[index])
        if index < 3:
            why = await scene.why(b[index])
            assert why == "gang default/b waits for gang default/a, whose turn it is to gather"
            assert await scene.bind(b[index], "n2") == f"pod default/{b[index]}: {why}"
    assert await asyncio.gather(*tasks) == ["", "", "", ""]
    await scene.look()
    assert (await scene.why("b0")).startswith("2 of the 4 pods that gang default/b needs have a place")
    assert scene.api.bound.keys() == set(a)


async def test_gangs_of_other_namespaces_are_not_named() -> None:
    """A tenant learns nothing about another one."""
    scene = Scene("n1", "n2")
    scene.gang("a")
    scene.gang("b", namespace="team")
    await scene.bring("a0")
    expected = "gang team/b waits for a gang of another namespace, whose turn it is to gather"
    assert await scene.why("b0") == expected


async def test_namespaces_take_turns() -> None:
    """A tenant has many gangs that never gather: a gang of another namespace comes after one of them."""
    scene = Scene("n1", "n2")
    for name in ("a", "b", "c"):
        scene.gang(name)
    scene.gang("other", namespace="team")
    await scene.bring("a0")
    for name in ("b0", "c0", "other0"):
        assert await scene.why(name) != ""
    await scene.look(20.5)
    assert scene.reserved == set()
    assert "waits for a gang of another namespace" in await scene.why("b0")
    assert "other0" in scene.woken
    tasks = await scene.bring(*(f"other{index}" for index in range(4)))
    assert await asyncio.gather(*tasks) == ["", "", "", ""]


async def test_turn_passes_on_if_no_pod_comes() -> None:
    """kube-scheduler may reject the pods of the gang itself; nothing is reserved meanwhile."""
    scene = Scene("n1", "n2", cards=4)
    for name in ("a", "b", "c"):
        scene.gang(name)
    tasks = await scene.bring("a0")
    assert await scene.why("b0") != ""
    assert await scene.why("c0") != ""
    tasks += await scene.bring("a1", "a2", "a3")
    assert await asyncio.gather(*tasks) == ["", "", "", ""]
    await scene.look()
    assert "waits for gang default/b" in await scene.why("c0")
    await scene.look(12.5)
    await scene.look()
    assert await scene.why("c0") == ""


async def test_announced_turn_is_not_shortened_by_the_wait_for_its_first_pod() -> None:
    """The time to gather begins when the first pod comes."""
    scene = Scene("n1", "n2")
    scene.gang("a")
    scene.gang("b")
    await scene.bring("a0")
    await scene.why("b0")
    await scene.look(20.5)
    await scene.look(11.0)
    (task,) = await scene.bring("b0")
    await scene.look(19.0)
    assert not task.done()
    await scene.look(1.5)
    assert "has not gathered" in task.result()


async def test_more_pods_than_necessary_pass_directly() -> None:
    """Not while the others are being bound."""
    scene = Scene("n1", "n2", "n3")
    names = scene.gang("train", 6)
    scene.api.release = asyncio.Event()
    tasks = await scene.bring(*names[:4])
    assert await scene.why(names[4]) == "others of gang default/train are being bound"
    scene.api.release.set()
    assert await asyncio.gather(*tasks) == ["", "", "", ""]
    await scene.look()
    assert scene.woken == {names[4]}
    tasks = await scene.bring(*names[4:])
    assert await asyncio.gather(*tasks) == ["", ""]


async def test_pod_without_a_size_passes() -> None:
    """Its gang is a preference, also while another gang gathers."""
    scene = Scene("n1", "n2", "n3")
    scene.gang("train")
    await scene.bring("train0")
    scene.create(member("free", "loose", size=0), pod("single", memory=1000))
    tasks = await scene.bring("free", "single")
    assert await asyncio.gather(*tasks) == ["", ""]


async def test_each_call_is_answered_by_the_outcome_of_its_pod() -> None:
    """A dry run is refused: none of the gang is bound, and each error says why."""
    scene = Scene("n1", "n2")
    names = scene.gang("train")
    scene.api.in_dry_run = {"train2"}
    errors = await asyncio.gather(*await scene.bring(*names))
    assert scene.api.bound == {}
    assert scene.reserved == set()
    assert [error for error in errors if "another pod of gang default/train cannot be bound" in error] == [
        error for name, error in zip(names, errors, strict=True) if name != "train2"
    ]
    assert "a policy says no" in errors[2]
    assert await scene.why("train0") == "gang default/train backs off"


async def test_pod_that_is_deleted_ends_its_wait() -> None:
    """The others wait on if a replacement exists; else all is released at once."""
    scene = Scene("n1", "n2")
    names = scene.gang("train", 5)
    tasks = await scene.bring(*names[:3])
    delete(scene.extender, scene.pods["train0"])
    await scene.look()
    assert [task.done() for task in tasks] == [True, False, False]
    assert "it is bound, or being deleted" in tasks[0].result()
    assert scene.reserved == {"uid-train1", "uid-train2"}
    delete(scene.extender, scene.pods["train4"])
    await scene.look()
    assert scene.reserved == set()
    assert "has fewer pods than it needs" in await tasks[1]
    assert "has fewer pods than it needs" in await tasks[2]


async def test_end_of_the_term_releases_the_pods_that_wait() -> None:
    """`/bind` answers errors, and the handover need not wait for the gang."""
    scene = Scene("n1", "n2")
    names = scene.gang("train")
    running = asyncio.create_task(scene.extender.run())
    await settle()
    tasks = await scene.bring(*names[:3])
    running.cancel()
    with suppress(asyncio.CancelledError):
        await running
    assert await scene.extender.drain(5)
    assert all("the term of this leader ended" in error for error in await asyncio.gather(*tasks))
    assert scene.reserved == set()


async def test_bindings_of_a_gang_are_cancelled_with_the_term() -> None:
    """The next leader reads what was written."""
    scene = Scene("n1", "n2")
    names = scene.gang("train")
    scene.api.release = asyncio.Event()
    tasks = await scene.bring(*names)
    assert not await scene.extender.drain(0.01)
    scene.extender.abandon()
    assert await scene.extender.drain(5)
    assert all("the term ended" in error for error in await asyncio.gather(*tasks))
    scene.api.release.set()
    await settle()
    assert scene.api.bound == {}


async def test_gang_of_which_an_earlier_leader_bound_some_pods_comes_first() -> None:
    """The others are tried at once, although kube-scheduler has not asked this leader about them."""
    scene = Scene("n1", "n2")
    keys = {"labels": {"gpu.scheduling/gang": "train"}, "annotations": {"gpu.scheduling/gang-min-members": "4"}}
    for index in range(2):
        scene.state.set_pod(
            msgspec.structs.replace(
                allocated(f"train{index}", node="n1", memory=1000, card=index),
                metadata=pod(f"train{index}", **keys).metadata,  # type: ignore[arg-type]
            )
        )
    scene.create(member("train2", "train"), member("train3", "train"))
    scene.gang("young", 2, size=2)
    running = asyncio.create_task(scene.extender.run())
    await settle()
    assert "waits for gang default/train" in await scene.why("young0")
    assert scene.woken == {"train2", "train3"}
    tasks = await scene.bring("train2", "train3")
    assert await asyncio.gather(*tasks) == ["", ""]
    running.cancel()


async def test_nothing_is_preempted_for_a_gang_unless_one_pod_is_missing() -> None:
    """kube-scheduler would evict for single pods of it; for the replacement of one pod it may, if the others run."""
    scene = Scene("n1", "n2")
    names = scene.gang("train")

    async def victims(name: str) -> object:
        proposed = {"n1": {"pods": [{"uid": "x"}], "numPDBViolations": 0}}
        body = msgspec.json.encode({"pod": scene.pods[name], "nodeNameToMetaVictims": proposed})
        return (await scene.extender.preempt(preemption_wire.decode(body))).victims

    assert await victims("train0") == {}
    await asyncio.gather(*await scene.bring(*names))
    delete(scene.extender, scene.pods["train0"])
    scene.create(member("again", "train"))
    assert await victims("again") != {}


async def test_nothing_is_preempted_for_the_last_pod_of_a_gang_that_gathers() -> None:
    """The others would not wait until the victims have ended."""
    scene = Scene("n1", "n2")
    await scene.bring(*scene.gang("train")[:3])
    proposed = {name: {"pods": [{"uid": "x"}], "numPDBViolations": 0} for name in scene.nodes}
    body = msgspec.json.encode({"pod": scene.pods["train3"], "nodeNameToMetaVictims": proposed})
    assert (await scene.extender.preempt(preemption_wire.decode(body))).victims == {}


async def test_calls_are_answered_while_one_pod_is_tried_again() -> None:
    """A Binding is refused after the others were written: their calls end at once, and its own once it is bound."""
    scene = Scene("n1", "n2")
    names = scene.gang("train")
    scene.api.refused = {"train1": 1}
    tasks = await scene.bring(*names)
    for name, task in zip(names, tasks, strict=True):
        if name != "train1":
            assert await task == ""
    assert not tasks[1].done()
    assert await tasks[1] == ""


async def test_after_a_long_rehearsal_gangs_wait_for_theirs() -> None:
    """So that large gangs, of whatever tenant, do not keep others from being evaluated; they are looked at later."""
    scene = Scene("n1", "n2")
    scene.gang("a")
    scene.gathering.rehearsals._resume_at = scene.clock.now + 4
    assert await scene.why("a0") == (
        "whether gang default/a fits is evaluated in a moment: others were evaluated for long"
    )
    await scene.look(3.9)
    assert scene.woken == set()
    await scene.look(0.2)
    assert scene.woken == {"a0"}
    assert await scene.why("a0") == ""


async def test_gang_that_fits_nowhere_and_loses_a_pod_says_so() -> None:
    """Its pods are evaluated again, and then when it is complete."""
    scene = Scene("n1", cards=3)
    scene.gang("train")
    await scene.why("train0")
    delete(scene.extender, scene.pods["train3"])
    scene.extender._rejected.note_change()
    assert scene.woken == {"train0"}
    await scene.look()
    assert scene.woken == {"train0"}
    assert "fewer exist" in await scene.why("train0")


async def test_pod_that_the_watch_has_not_shown_is_read_if_it_may_have_a_gang() -> None:
    """kube-scheduler was faster: the pod is not offered nodes as if it were alone."""
    scene = Scene("n1", "n2")
    early = scene.pods["early"] = scene.api.pods["early"] = member("early", "train")
    assert "needs 4 pods, and fewer exist" in await scene.why("early")
    assert scene.state.gangs.of(early.uid) is not None


async def test_pod_whose_claim_may_name_a_gang_is_read_too() -> None:
    """Its own keys say nothing of the gang."""
    scene = Scene("n1", "n2")
    scene.state.set_claim(of_gang(claim("one", exclusivity="Shared", memoryMiB=100), "train"))
    keys = {"gpu.scheduling/claim": "one", "gpu.scheduling/gang-min-members": "4"}
    early = pod("early", annotations=keys, containers=[container(claim("one"))])
    scene.pods["early"] = scene.api.pods["early"] = early
    assert "needs 4 pods, and fewer exist" in await scene.why("early")


def objects(scene: Scene, name: str, *nodes: str) -> Args:
    """Return the question about a pod with nodes as objects."""
    items = [{"metadata": {"name": node, "annotations": {}}} for node in nodes]
    return decode_args(msgspec.json.encode({"pod": scene.pods[name], "nodes": {"items": items}}))


async def test_question_of_an_autoscaler_is_about_the_pod_alone() -> None:
    """It has templates of nodes: a gang that fits nowhere may fit on more of them."""
    scene = Scene("n1", cards=3)
    scene.gang("train")
    assert await scene.why("train0") != ""
    assert (await scene.extender.filter(objects(scene, "train0", "n1", "template"))).has_node


async def test_question_with_objects_of_nodes_starts_nothing() -> None:
    """It may be a simulation, too; the gang gathers once a pod of it comes to `/bind`."""
    scene = Scene("n1", "n2")
    scene.gang("a")
    scene.gang("b")
    assert (await scene.extender.filter(objects(scene, "a0", "n1"))).has_node
    assert await scene.why("b0") == ""
    scene = Scene("n1", "n2")
    scene.gang("a")
    scene.gang("b")
    scene.bind("a0", "n1")
    await settle()
    assert await scene.why("b0") != ""


async def test_single_pods_see_nothing_of_a_rehearsal() -> None:
    """It reserves cards for a moment; what is asked about others meanwhile waits for its end."""
    scene = Scene("n1", cards=2)
    scene.gang("train", 2, size=2)
    scene.create(pod("single", memory=1000))
    args = Args.of_pod(scene.pods["single"], scene.nodes)
    async with scene.state.turn:
        asked = asyncio.create_task(scene.why("train0"))
        await settle()
        calls = [
            asyncio.create_task(scene.why("single")),
            asyncio.create_task(scene.extender.prioritize(args)),
            scene.bind("single", "n1"),
        ]
        await settle()
        assert not any(call.done() for call in calls)
    await asyncio.gather(asked, *calls)


async def test_pods_are_not_tried_again_before_the_turn_of_their_gang() -> None:
    """Nothing is written into their status: the answer of `/filter` would be the same."""
    scene = Scene("n1", "n2", "n3")
    scene.gang("a")
    scene.gang("b")
    waits = WaitingPod(scene.pods["b0"], "uid-b0", scene.nodes)
    assert (await scene.extender.fits(waits))[0]
    await scene.bring("a0")
    assert not (await scene.extender.fits(waits))[0]


async def test_gang_whose_pods_are_replaced_is_rehearsed_again() -> None:
    """Smaller pods fit, which no other event says."""
    scene = Scene("n1", cards=3)
    scene.gang("train")
    assert await scene.why("train0") != ""
    for name in ("train2", "train3"):
        delete(scene.extender, scene.pods[name])
    scene.create(member("half0", "train", memory=500), member("half1", "train", memory=500))
    assert await scene.why("train0") == ""


async def test_long_rehearsals_are_rationed(monkeypatch: pytest.MonkeyPatch) -> None:
    """After each, as long as it takes a fifth of the time; and one review rehearses no more gangs than its budget."""
    scene = Scene("n1", cards=1)
    for name in ("a", "b", "c"):
        scene.gang(name, 2, size=2)
        await scene.why(f"{name}0")
    rehearsals, rehearsed = scene.gathering.rehearsals, []
    monkeypatch.setattr(gang_rehearsals, "_BUDGET_SECONDS", 0.0)
    original = rehearsals._rehearse

    async def counting(gang: Gang) -> tuple[gang_rehearsals.Plan, float]:
        rehearsed.append(gang.key.name)
        return await original(gang)

    monkeypatch.setattr(rehearsals, "_rehearse", counting)
    scene.extender._rejected.note_change()
    await scene.look()
    assert rehearsed == ["a"]
    assert rehearsals._resume_at > scene.clock.now
    await scene.look()
    assert rehearsed == ["a"]
    for expected in (["a", "b"], ["a", "b", "c"]):
        await scene.look(10)
        assert rehearsed == expected


async def test_explanation_says_for_what_a_pod_waits() -> None:
    """How many have come, whose turn it is, or what its gang lacks."""
    scene = Scene("n1", "n2")
    scene.gang("a")
    scene.gang("b")
    scene.gang("few", 1)
    await scene.bring("a0")
    assert scene.extender.waits_for_gang(scene.pods["a1"]) == (
        "gang default/a gathers: 1 of 4 pods have come to their nodes, the others have 20 s left"
    )
    assert "waits for gang default/a" in scene.extender.waits_for_gang(scene.pods["b0"])
    assert "fewer exist" in scene.extender.waits_for_gang(scene.pods["few0"])
    scene.create(pod("single", memory=1000))
    assert scene.extender.waits_for_gang(scene.pods["single"]) == ""


@pytest.mark.parametrize("seconds", [0.0, -1.0, 25.5, float("nan")])
def test_time_to_gather_is_shorter_than_a_call_may_last(seconds: float) -> None:
    """kube-scheduler gives up a call after its httpTimeout of 30 s."""
    with pytest.raises(ValueError, match="gangs.gather_seconds"):
        GangSettings(gather_seconds=seconds)
