"""Vectors from kube-scheduler's ImageLocality: sizes times the share of nodes, from 23 MiB to 1000 MiB a container."""

from typing import Any

import msgspec
import pytest

from scheduler.objects import Node, NodeWithImages
from scheduler.scoring import image_locality
from tests.scheduler.support.builders import node, pod, state
from tests.scheduler.support.preferring import cluster, everywhere, listed

MIB = 1024 * 1024


def with_images(name: str, **sizes: int) -> NodeWithImages:
    """Return a node with images, by name and size in MiB."""
    images = [
        {"names": [f"{image}@sha256:0", f"{image}:latest"], "sizeBytes": size * MIB} for image, size in sizes.items()
    ]
    body = {"metadata": {"name": name}, "status": {"allocatable": {"cpu": "1"}, "images": images}}
    return msgspec.convert(body, NodeWithImages)


def scores(*nodes: Node, images: tuple[str, ...]) -> list[int]:
    """Return the scores of nodes for a pod with these images."""
    made = cluster(*nodes)
    containers = [{"name": f"c{position}", "image": image} for position, image in enumerate(images)]
    return listed(image_locality.scores(pod("p", containers=containers), everywhere(made), made))


def test_a_large_image_counts_by_the_share_of_nodes_that_have_it() -> None:
    """500 MiB in one of two nodes count 250: 100 * (250 - 23) // 977 is 23. In both, 500: 48."""
    assert scores(with_images("n1", a=500), with_images("n2"), images=("a",)) == [23, 0]
    assert scores(with_images("n1", a=500), with_images("n2", a=500), images=("a:latest",)) == [48, 48]


def test_sizes_are_bounded_for_each_container() -> None:
    """Less than 23 MiB is worth nothing; two containers can be worth 2000 MiB: 100 * (1500 - 23) // 1977 is 74."""
    assert scores(with_images("n1", a=5000, b=20), images=("a",)) == [100]
    assert scores(with_images("n1", a=5000, b=20), images=("b",)) == [0]
    assert scores(with_images("n1", a=1000, b=500), images=("a", "b")) == [74]


@pytest.mark.parametrize(
    ("name", "expected"),
    [("a", "a:latest"), ("a:1", "a:1"), ("host:5000/a", "host:5000/a:latest"), ("h/a@sha256:0", "h/a@sha256:0")],
)
def test_an_image_without_a_tag_has_the_tag_latest(name: str, expected: str) -> None:
    """The port of a registry is not a tag."""
    assert image_locality.normalised_name(name) == expected


def test_images_are_decoded_only_for_schedulers_that_weigh_them() -> None:
    """Equal images of nodes are one object; an ordinary node has none."""
    first, second = with_images("n1", a=500), with_images("n2", a=500)
    assert first.images[0] is second.images[0]
    body: Any = msgspec.to_builtins(first)
    assert msgspec.convert(body, Node).images == ()
    assert "images" not in msgspec.to_builtins(node("n"))["status"]


def test_a_node_that_loses_an_image_counts_no_more() -> None:
    """Neither a changed node nor a removed one."""
    made = cluster(with_images("n1", a=500), with_images("n2", a=500))
    made.set_node(with_images("n1"))
    assert made.index.images["a:latest"] == 1
    made.drop_node("n2")
    assert not made.index.images


def test_new_images_of_a_node_wake_no_pod() -> None:
    """They count for scores, but no pod fits that did not fit before; other changes wake pods as ever."""
    made = state()
    before, after = with_images("n1"), with_images("n1", a=500)
    made.set_node(before)
    woken: list[object] = []
    made.queue.notify = woken.append  # type: ignore[method-assign]
    made.set_node(after, before)
    assert made.node_cache.index.images["a:latest"] == 1
    assert woken == []
    after.spec.unschedulable = True
    made.set_node(after, with_images("n1", a=500))
    assert woken


def test_a_name_that_is_too_long_for_an_image_is_not_kept() -> None:
    """A pod is kept in memory for each replica."""
    long = pod("p", containers=[{"name": "c", "image": "x" * 100_000}])
    assert long.spec.containers[0].image == ""
