"""How pods share a card, as the annotations of its node say."""

from allocation.bindings import share_modes
from allocation.names import SHARE_MODE_PREFIX


def test_each_card_has_the_mode_that_its_annotation_names() -> None:
    """0 is exclusive, 1 memory slicing, 2 and anything that is not known time slicing; other annotations are not."""
    values = {"GPU-0": "0", "GPU-1": "1", "GPU-2": "2", "GPU-3": "", "GPU-4": "9", "GPU-5": "exclusive"}
    annotations = {f"{SHARE_MODE_PREFIX}{uuid}": value for uuid, value in values.items()}
    assert share_modes.read({**annotations, "other/GPU-6": "0"}) == {
        "GPU-0": "exclusive",
        "GPU-1": "memory-slicing",
        "GPU-2": "time-slicing",
        "GPU-3": "time-slicing",
        "GPU-4": "time-slicing",
        "GPU-5": "time-slicing",
    }


def test_a_node_without_such_annotations_has_no_modes() -> None:
    """Its cards are time-sliced: `scheduler.bindings.app_bindings` says so."""
    assert share_modes.read({}) == {}
