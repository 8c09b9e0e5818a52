"""Every format is read as it was written, and HAMi's formats are read in all their versions."""

import json

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from allocation.allocation import Allocation, CardShare, ClaimMark
from allocation.delivery import DELIVERIES, LONGEST_CONTAINER_NAME, Delivery
from allocation.errors import MalformedRecordError
from allocation.fabric import VARIABLES
from allocation.inventory import Card, NodeInventory
from allocation.names import environment_key, is_output_key
from allocation.request import ContainerRequest, Kind, PodRequest
from allocation.topology.layout import CROSS_NUMA, LINKED, SAME_NUMA
from allocation.wire import environment, hami, record

uuids = st.uuids().map(lambda value: f"GPU-{value}")
int32 = st.integers(min_value=0, max_value=2**31 - 1)
names = st.from_regex(r"[a-z0-9]([-a-z0-9]{0,61}[a-z0-9])?", fullmatch=True)
shares = st.builds(CardShare, uuid=uuids, index=st.integers(0, 15), memory_mib=int32, cores=st.integers(0, 1000))
allocations = st.builds(
    Allocation,
    node=names,
    containers=st.dictionaries(
        names, st.lists(shares, min_size=1, max_size=4, unique_by=lambda share: share.uuid).map(tuple), max_size=4
    ),
)


claimed = st.builds(
    lambda node, containers, shares, mark: Allocation(node, dict.fromkeys(containers, shares), mark),
    names,
    st.sets(names, min_size=1, max_size=3),
    st.lists(shares, min_size=1, max_size=4, unique_by=lambda share: share.uuid).map(tuple),
    st.builds(ClaimMark, name=names, exclusivity=st.sampled_from(["Exclusive", "Shared", "MIG"])),
)


@given(allocations | claimed)
def test_an_allocation_survives_its_annotation(allocation: Allocation) -> None:
    """decode(encode(x)) equals x."""
    assert record.decode(record.encode(allocation)) == allocation


def test_the_annotation_is_as_documented() -> None:
    """docs/interfaces.md has exactly this text."""
    allocation = Allocation("n1", {"main": (CardShare("GPU-a", 0, 3000, 300),)})
    assert record.encode(allocation) == (
        '{"v":1,"node":"n1","containers":{"main":[{"uuid":"GPU-a","index":0,"memoryMiB":3000,"cores":300}]}}'
    )


def test_the_annotation_names_the_claim() -> None:
    """Only for a pod with a claim, so that the text of other pods is what releases without claims read."""
    allocation = Allocation("n1", {"main": (CardShare("GPU-a", 0, 8, 1000),)}, ClaimMark("single-gpu", "Exclusive"))
    assert record.encode(allocation) == (
        '{"v":1,"node":"n1","containers":{"main":[{"uuid":"GPU-a","index":0,"memoryMiB":8,"cores":1000}]},'
        '"claim":{"name":"single-gpu","exclusivity":"Exclusive"}}'
    )


SHARE = '{"uuid":"u","index":0,"memoryMiB":1,"cores":0}'


@pytest.mark.parametrize(
    "text",
    [
        "",
        "null",
        "[]",
        '{"v":2,"node":"n","containers":{}}',
        '{"v":1,"node":"","containers":{}}',
        '{"v":1,"node":"n","containers":{"c":[{"uuid":"u","index":0,"memoryMiB":-1,"cores":0}]}}',
        '{"v":1,"node":"n","containers":{"c":[{"uuid":"u","index":0,"memoryMiB":1,"cores":1001}]}}',
        '{"v":1,"node":"n","containers":{"c":[{"uuid":"u","index":0,"memoryMiB":2147483648,"cores":0}]}}',
        '{"v":1,"node":"n","containers":{"c":[SHARE,SHARE]}}'.replace("SHARE", SHARE),
        '{"v":1,"node":"n","containers":{},"more":1}',
        '{"v":1,"node":"n","containers":{},"claim":{"name":"c"}}',
        '{"v":1,"node":"n","containers":{},"claim":{"name":"","exclusivity":"MIG"}}',
        '{"v":1,"node":"n","containers":{},"claim":{"name":"c","exclusivity":"exclusive"}}',
        '{"v":1,"node":"n","containers":{},"claim":{"name":"c","exclusivity":"MIG","more":1}}',
        '{"v":1,"node":"n","containers":{"c":[SHARE],"d":[]},"claim":{"name":"c","exclusivity":"Shared"}}'.replace(
            "SHARE", SHARE
        ),
    ],
)
def test_a_malformed_annotation_is_an_error(text: str) -> None:
    """A value that a person may have written is accepted only if it is complete and in range."""
    with pytest.raises(MalformedRecordError, match="annotation gpu.scheduling/allocation"):
        record.decode(text)


def test_an_error_quotes_no_more_of_an_annotation_than_a_person_reads() -> None:
    """It is logged wherever the pod is seen, and anybody may write the annotation where no policy is."""
    with pytest.raises(MalformedRecordError, match="unknown field `xxx") as error:
        record.decode(json.dumps({"x" * 100_000: 1}))
    assert len(str(error.value)) < 500


devices = st.tuples(uuids, int32, st.integers(0, 100))


@given(st.lists(st.lists(devices, max_size=3), max_size=5))
def test_devices_survive_the_allocation_string(containers: list[list[hami.Device]]) -> None:
    """decode(encode(x)) equals x, even for containers without a card."""
    assert hami.decode_devices(hami.encode_devices(containers)) == containers


@pytest.mark.parametrize(
    ("text", "containers"),
    [
        ("GPU-0,NVIDIA,3000,0:;GPU-0,NVIDIA,5000,0:;", [[("GPU-0", 3000, 0)], [("GPU-0", 5000, 0)]]),
        (";GPU-a,NVIDIA,4096,50:GPU-b,NVIDIA,4096,50:;", [[], [("GPU-a", 4096, 50), ("GPU-b", 4096, 50)]]),
        (";;", [[], []]),
        (",,0,0:;", [[]]),
        ("GPU-a,NVIDIA,3000,30,more:;", [[("GPU-a", 3000, 30)]]),
    ],
)
def test_documented_allocation_strings_are_read(text: str, containers: list[list[hami.Device]]) -> None:
    """These are examples of HAMi's rules 1.2."""
    assert hami.decode_devices(text) == containers


def test_a_container_without_gpu_has_an_entry() -> None:
    """HAMi omits leading entries (its issue 2899); tranche writes one for each container."""
    request = PodRequest(
        (
            ContainerRequest("init", Kind.INIT, "spec.initContainers[0]"),
            ContainerRequest("sidecar", Kind.REGULAR, "spec.containers[0]"),
            ContainerRequest("main", Kind.REGULAR, "spec.containers[1]", count=1, memory_mib=3000, cores=300),
        )
    )
    allocation = Allocation("n1", {"main": (CardShare("GPU-a", 0, 3000, 300),)})
    assert hami.allocation_string(allocation, request) == ";;GPU-a,NVIDIA,3000,30:;"


cards = st.builds(
    Card,
    uuid=uuids,
    index=st.integers(0, 2**16),
    memory_mib=int32,
    cores=st.integers(0, 20).map(lambda tens: tens * 100),
    slots=st.integers(0, 128),
    model=st.sampled_from(["NVIDIA", "NVIDIA H100 80GB HBM3", "NVIDIA-Tesla V100-PCIE-32GB"]),
    numa=st.integers(0, 7),
    mode=st.sampled_from(["hami-core", "mig"]),
    healthy=st.booleans(),
)


@given(st.lists(cards, max_size=8, unique_by=lambda card: card.index))
def test_an_inventory_survives_the_register_annotation(cards: list[Card]) -> None:
    """decode(encode(x)) equals x up to order, and equal inventories result in equal text."""
    inventory = NodeInventory("n1", tuple(sorted(cards, key=lambda card: card.index)))
    shuffled = NodeInventory("n1", tuple(reversed(inventory.cards)))
    assert hami.decode_register("n1", hami.encode_register(inventory)) == inventory
    assert hami.encode_register(shuffled) == hami.encode_register(inventory)


def test_the_documented_register_annotation_is_read_and_written() -> None:
    """This is an example of HAMi's rules 1.1, by which zero values are omitted."""
    text = (
        '[{"id":"GPU-8dcd427f-483b-b48f-d7e5-75fb19a52b76","count":10,"devmem":40960,"devcore":100,'
        '"type":"NVIDIA A100-SXM4-40GB","mode":"hami-core","health":true},'
        '{"id":"GPU-ebe7c3f7-303d-558d-435e-99a160631fe4","index":1,"count":10,"devmem":40960,"devcore":100,'
        '"type":"NVIDIA A100-SXM4-40GB","numa":1,"mode":"hami-core","health":true}]'
    )
    inventory = hami.decode_register("n1", text)
    assert [card.index for card in inventory.cards] == [0, 1]
    assert inventory.cards[1].numa == 1
    assert inventory.cards[0].cores == 1000
    assert hami.encode_register(inventory) == text


@given(allocations, st.dictionaries(st.sampled_from(VARIABLES), st.text()))
def test_references_and_annotations_agree(allocation: Allocation, fabric: dict[str, str]) -> None:
    """Every variable that admission refers to resolves to the container's allocation, or to the node's fabric."""
    annotations = environment.annotations(allocation, fabric=fabric)
    for name, given_shares in allocation.containers.items():
        references = environment.references(name, len(given_shares), fabric=fabric)
        assert environment.resolve(references, annotations) == {**environment.values(given_shares), **fabric}
        assert all(is_output_key(key) for key in references.values())


TWO_CARDS = (CardShare("GPU-a", 3, 3000, 300), CardShare("GPU-b", 1, 4000, 300))


def test_the_environment_of_two_cards() -> None:
    """UUIDs in the container's order, one limit per card, the smallest as the net."""
    assert environment.values(TWO_CARDS, "env") == {
        "NVIDIA_VISIBLE_DEVICES": "GPU-a,GPU-b",
        "CUDA_VISIBLE_DEVICES": "GPU-a,GPU-b",
        "CUDA_DEVICE_MEMORY_LIMIT": "3000m",
        "CUDA_DEVICE_MEMORY_LIMIT_0": "3000m",
        "CUDA_DEVICE_MEMORY_LIMIT_1": "4000m",
        "CUDA_DEVICE_SM_LIMIT": "30",
    }


def test_a_card_without_a_limit_does_not_lift_the_limit_of_others() -> None:
    """The variable without an index limits a card beyond the requested number, of which no variable tells."""
    free, limited = CardShare("GPU-a", 0, 0, 0), CardShare("GPU-b", 1, 8192, 0)
    values = environment.values((free, limited))
    assert values["CUDA_DEVICE_MEMORY_LIMIT"] == "8192m"
    assert (values["CUDA_DEVICE_MEMORY_LIMIT_0"], values["CUDA_DEVICE_MEMORY_LIMIT_1"]) == ("0m", "8192m")
    assert environment.values((free,))["CUDA_DEVICE_MEMORY_LIMIT"] == "0m"


@pytest.mark.parametrize("delivery", ["env", "cdi", "nvidia-nri"])
def test_cards_as_indexes_differ_in_one_variable(delivery: Delivery) -> None:
    """An index is a position among the container's cards, not that on the node: no other card is visible to it."""
    indexes, by_uuid = (environment.values(TWO_CARDS, delivery, visible_as=each) for each in ("Index", "UUID"))
    assert by_uuid == environment.values(TWO_CARDS, delivery)
    assert indexes == {**by_uuid, "CUDA_VISIBLE_DEVICES": "0,1"}


def test_the_containers_of_a_claim_see_the_same_cards() -> None:
    """The annotations of the pod say so for each container; which of its cards the pod has is said once."""
    allocation = Allocation("n1", dict.fromkeys(("a", "b"), TWO_CARDS), ClaimMark("c", "Exclusive"))
    annotations = environment.annotations(allocation, visible_as="Index")
    of_a, of_b = (environment.resolve(environment.references(name, 2), annotations) for name in ("a", "b"))
    assert of_a == of_b == environment.values(TWO_CARDS, visible_as="Index")
    assert annotations["gpu.scheduling/allocated"] == "3,1"


@pytest.mark.parametrize("delivery", ["cdi", "nvidia-nri"])
def test_qualified_names_differ_in_one_variable(delivery: Delivery) -> None:
    """NVIDIA's runtime needs the kind in every entry; CUDA and HAMi-core read the other variables as before."""
    qualified, bare = (environment.values(TWO_CARDS, each) for each in (delivery, "env"))
    assert qualified.pop("NVIDIA_VISIBLE_DEVICES") == "runtime.nvidia.com/gpu=GPU-a,runtime.nvidia.com/gpu=GPU-b"
    assert qualified == {name: value for name, value in bare.items() if name != "NVIDIA_VISIBLE_DEVICES"}


def test_only_one_delivery_adds_an_annotation() -> None:
    """It is a key of NVIDIA's NRI plugin, which injects what it names on every node where the plugin runs."""
    allocation = Allocation("n1", {"main": TWO_CARDS})
    key = "nvidia.cdi.k8s.io/container.main"
    assert environment.annotations(allocation, "nvidia-nri")[key] == "nvidia.com/gpu=GPU-a,nvidia.com/gpu=GPU-b"
    assert not any(key in environment.annotations(allocation, each) for each in ("env", "cdi"))


def test_kai_gpu_fractioning_gets_cards_and_limits_by_annotations() -> None:
    """Without it a container has no card; it knows one limit for all cards of a container, so that is the smallest."""
    shares = (CardShare("GPU-a", 3, 3000, 300).up_to(9000, 0), TWO_CARDS[1].up_to(8000, 0))
    annotations = environment.annotations(Allocation("n1", {"main": shares}), "nvfractions")
    assert {key: value for key, value in annotations.items() if key.startswith("nvidia.com/")} == {
        "nvidia.com/container.main.gpus.devices": "runtime.nvidia.com/gpu=GPU-a,runtime.nvidia.com/gpu=GPU-b",
        "nvidia.com/container.main.gpu-memory.request": "3000Mi",
        "nvidia.com/container.main.gpu-memory.limit": "8000Mi",
        "nvidia.com/container.main.gpu-compute.portion": "0.3",
    }
    assert annotations["nvidia-visible-devices.gpu.scheduling/main"] == "void"
    assert environment.fraction_variables(annotations, "main") == {
        "NVIDIA_VISIBLE_DEVICES": "runtime.nvidia.com/gpu=GPU-a,runtime.nvidia.com/gpu=GPU-b",
        "NVIDIA_GPU_MEMORY_REQUEST": "3000",
        "NVIDIA_GPU_MEMORY_LIMIT": "8000",
        "CUDA_MPS_ACTIVE_THREAD_PERCENTAGE": "30",
    }


@pytest.mark.parametrize("share", [CardShare("MIG-a", 0, 4864, 300, "GPU-a"), CardShare("GPU-a", 0, 0, 300)])
def test_kai_gpu_fractioning_has_no_part_in_what_it_cannot_limit(share: CardShare) -> None:
    """It limits no MIG instance, and acts only on containers with a limit: NVIDIA's runtime gives these their cards."""
    allocation = Allocation("n1", {"main": (share,)})
    assert environment.annotations(allocation, "nvfractions") == environment.annotations(allocation, "cdi")


@given(st.lists(st.builds(CardShare.up_to, shares, int32, st.just(0)), min_size=1, max_size=4).map(tuple), names)
@example((CardShare("GPU-a", 0, 0, 0).up_to(100, 0), CardShare("GPU-b", 1, 8192, 0)), "main")
def test_kai_gpu_fractioning_never_limits_above_a_share(limited: tuple[CardShare, ...], container: str) -> None:
    """The request is not above the limit, which NVIDIA's software refuses, and both are whole MiB from 1 on."""
    annotations = environment.annotations(Allocation("n1", {container: limited}), "nvfractions")
    written = environment.fraction_variables(annotations, container)
    largest = [share.at_limits().memory_mib for share in limited]
    assert bool(written) == any(largest)
    if written:
        request, limit = int(written["NVIDIA_GPU_MEMORY_REQUEST"]), int(written["NVIDIA_GPU_MEMORY_LIMIT"])
        assert 1 <= request <= limit == min(filter(None, largest))
        percent = min(each.cores_percent for each in limited)
        assert written.get("CUDA_MPS_ACTIVE_THREAD_PERCENTAGE") == (str(min(percent, 100)) if percent else None)
        longest = max(len(key.partition("/")[2]) for key in environment.fraction_references(container).values())
        assert (longest <= 63) == (len(container) <= LONGEST_CONTAINER_NAME["nvfractions"])


def test_only_one_delivery_leaves_a_container_to_the_device_plugin() -> None:
    """NVIDIA's runtime gives it nothing, and neither does the agent's other plugin."""
    allocation = Allocation("n1", {"main": TWO_CARDS})
    written = {each: environment.annotations(allocation, each) for each in DELIVERIES}
    left = [each for each in DELIVERIES if environment.is_left_to_device_plugin(written[each], "main")]
    assert left == ["device-plugin"]
    assert not environment.is_left_to_device_plugin(environment.annotations(allocation, "device-plugin"), "other")


def test_before_the_decision_no_device_is_visible() -> None:
    """A missing annotation is an empty string: `CUDA_VISIBLE_DEVICES` hides every GPU."""
    assert environment.resolve(environment.references("main", 1), {})["CUDA_VISIBLE_DEVICES"] == ""


@given(names)
def test_every_container_name_gives_a_valid_key(container: str) -> None:
    """Prefix at most 253 characters, name part at most 63 (Kubernetes' rule for annotation keys)."""
    prefix, _, name = environment_key("cuda-device-memory-limit-127", container).partition("/")
    assert len(prefix) <= 253
    assert len(name) <= 63


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        (
            "GPU-00552014-5c87-89ac-b1a6-7b53aa24b0ec,10,32768,100,NVIDIA-Tesla V100-PCIE-32GB,0,true,0,hami-core:",
            Card("GPU-00552014-5c87-89ac-b1a6-7b53aa24b0ec", 0, 32768, 1000, 10, "NVIDIA-Tesla V100-PCIE-32GB"),
        ),
        ("GPU-a,5,16384,50,Tesla T4,1,false:", Card("GPU-a", 0, 16384, 500, 5, "Tesla T4", numa=1, healthy=False)),
        ("GPU-a,5,16384,50,Tesla T4,1,1,3,mig:", Card("GPU-a", 3, 16384, 500, 5, "Tesla T4", numa=1, mode="mig")),
    ],
)
def test_older_register_annotations_are_read(text: str, expected: Card) -> None:
    """Old plugins still write the forms before JSON (HAMi's rules 1.1)."""
    assert hami.decode_register("n1", text).cards == (expected,)


@pytest.mark.parametrize(
    "text",
    [
        "GPU-a,5,16384:",
        "GPU-a,x,16384,50,Tesla T4,1,true:",
        "GPU-a,5,16384,50,Tesla T4,1,maybe:",
        "[{]",
        "{}",
        '[{"id":1}]',
    ],
)
def test_a_malformed_register_annotation_is_an_error_with_its_node(text: str) -> None:
    """The message names the node and the annotation."""
    with pytest.raises(MalformedRecordError, match="node n1, annotation hami.io/node-nvidia-register"):
        hami.decode_register("n1", text)


def test_more_cards_than_a_node_can_have_are_an_error() -> None:
    """Connections are computed for each pair; for as many cards as an annotation can hold that takes minutes."""
    entries = [{"id": f"GPU-{index}", "index": index} for index in range(129)]
    assert len(hami.decode_register("n1", json.dumps(entries[:128])).layout) == 128
    with pytest.raises(MalformedRecordError, match="node n1, .*: it has 129 cards, 128 is the limit"):
        hami.decode_register("n1", json.dumps(entries))


def test_unknown_fields_of_a_register_annotation_are_ignored() -> None:
    """v2.5 to v2.9 wrote more fields. A missing field is zero, and a missing health means unhealthy."""
    (only,) = hami.decode_register("n1", '[{"id":"GPU-a","devicepairscore":{},"customInfo":{"x":1}}]').cards
    assert only == Card("GPU-a", 0, 0, 0, 0, healthy=False)


def test_pair_scores_are_read() -> None:
    """They are in HAMi's score annotation (HAMi's rules 1.1)."""
    scores = '[{"uuid":"GPU-a","score":{"GPU-b":1800}},{"uuid":"GPU-b","score":{"GPU-a":1800}}]'
    register = '[{"id":"GPU-a","health":true},{"id":"GPU-b","index":1,"health":true}]'
    layout = hami.decode_register("n1", register, scores).layout
    assert layout.scores == ((0, 1800), (1800, 0))
    assert (layout.bandwidth[0][1], layout.tiers[0][1], layout.islands) == (450, LINKED, (0, 0))


def test_scores_of_the_way_over_pcie_are_no_links() -> None:
    """Only what is at least 100 says how many NVLinks there are; the NUMA nodes decide about the others."""
    scores = json.dumps(
        [
            {"uuid": "GPU-a", "score": {"GPU-b": 260, "GPU-c": 60}},
            {"uuid": "GPU-b", "score": {"GPU-a": 260, "GPU-c": 10}},
            {"uuid": "GPU-c", "score": {"GPU-a": 60, "GPU-b": 10}},
        ]
    )
    register = json.dumps(
        [
            {"id": "GPU-a", "index": 4, "health": True},
            {"id": "GPU-b", "index": 5, "health": True, "numa": 1},
            {"id": "GPU-m", "index": 6, "health": True, "mode": "mig"},
            {"id": "GPU-c", "index": 7, "health": True},
        ]
    )
    layout = hami.decode_register("n1", register, scores).layout
    assert layout.ids == (4, 5, 7)
    assert layout.islands == (0, 0, 1)
    assert layout.bandwidth == ((50, 50, 0), (50, 50, 0), (0, 0, 0))
    assert layout.tiers == ((LINKED, LINKED, SAME_NUMA), (LINKED, LINKED, CROSS_NUMA), (SAME_NUMA, CROSS_NUMA, LINKED))
    assert layout.scores == ((0, 260, 60), (260, 0, 10), (60, 10, 0))


@pytest.mark.parametrize(
    ("scores", "score"),
    [
        ('[{"uuid":"GPU-a","score":{"GPU-b":1800}}]', 0),
        ('[{"uuid":"GPU-a","score":{"GPU-b":1800}},{"uuid":"GPU-b","score":{"GPU-a":200}}]', 200),
        ('[{"uuid":"GPU-a","score":{"GPU-b":-5}},{"uuid":"GPU-b","score":{"GPU-a":-5}}]', 0),
        (
            '[{"uuid":"GPU-a","score":{"GPU-b":2147483648}},{"uuid":"GPU-b","score":{"GPU-a":9223372036854775807}}]',
            (1 << 20) - 1,
        ),
        ('[{"uuid":"GPU-x","score":{"GPU-b":100}},{"uuid":"GPU-b","score":{"GPU-x":100,"GPU-b":100}}]', 0),
    ],
)
def test_implausible_scores_are_bounded(scores: str, score: int) -> None:
    """A pair has one score, of limited size; cards that are not registered do not matter."""
    register = '[{"id":"GPU-a","health":true},{"id":"GPU-b","index":1,"health":true}]'
    layout = hami.decode_register("n1", register, scores).layout
    assert layout.scores == ((0, score), (score, 0))
    assert len(set(layout.islands)) == (1 if score else 2)


@pytest.mark.parametrize("scores", ["{}", "[{}]", '[{"uuid":"GPU-a","score":{"GPU-b":1.5}}]', "9" * 400])
def test_a_malformed_score_annotation_is_an_error_with_its_name(scores: str) -> None:
    """The message names the node and the annotation."""
    with pytest.raises(MalformedRecordError, match="node n1, annotation hami.io/node-nvidia-score"):
        hami.decode_register("n1", "[]", scores)


def test_cards_without_scores_are_connected_as_their_numa_nodes_say() -> None:
    """Without the score annotation nothing is known of links."""
    register = '[{"id":"GPU-a","health":true},{"id":"GPU-b","index":1,"health":true,"numa":1}]'
    layout = hami.decode_register("n1", register).layout
    assert (layout.tiers[0][1], layout.bandwidth[0][1], layout.islands) == (CROSS_NUMA, 0, (0, 1))


def _pod(*kinds: tuple[str, Kind, int]) -> PodRequest:
    return PodRequest(tuple(ContainerRequest(name, kind, name, count=count) for name, kind, count in kinds))


ENTRY = "GPU-a,NVIDIA,4096,50:;"


@pytest.mark.parametrize(
    ("text", "request_", "containers"),
    [
        (";" + ENTRY, _pod(("init", Kind.INIT, 0), ("main", Kind.REGULAR, 1)), {"main": 1}),
        # HAMi issue 2899: the entry of the container before is missing.
        (ENTRY, _pod(("init", Kind.INIT, 0), ("main", Kind.REGULAR, 1)), {"main": 1}),
        (ENTRY + ";", _pod(("web", Kind.REGULAR, 0), ("main", Kind.REGULAR, 1), ("log", Kind.REGULAR, 0)), {"main": 1}),
        (ENTRY * 2, _pod(("i", Kind.INIT, 1), ("w", Kind.REGULAR, 0), ("m", Kind.REGULAR, 1)), {"i": 1, "m": 1}),
        # More entries than GPU containers: those left over are counted all the same.
        (ENTRY * 2, _pod(("main", Kind.REGULAR, 1)), {"?0": 1, "main": 1}),
        ("", _pod(("main", Kind.REGULAR, 1)), {}),
    ],
)
def test_incomplete_strings_are_aligned_with_the_gpu_containers(
    text: str, request_: PodRequest, containers: dict[str, int]
) -> None:
    """Entries are aligned from the end, and none is lost."""
    allocation = hami.read_allocation(text, request_, node="n1")
    assert {name: len(shares) for name, shares in allocation.containers.items()} == containers
    assert all(
        share.memory_mib == 4096 and share.cores == 500 for shares in allocation.containers.values() for share in shares
    )
