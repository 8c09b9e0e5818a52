"""The list of cordoned cards of a node."""

from hypothesis import given
from hypothesis import strategies as st

from allocation.constraints import words
from allocation.wire.cordon import edited

UUIDS = st.text("abGPU-0", min_size=1, max_size=4)


@given(
    present=st.lists(st.one_of(UUIDS, st.sampled_from(["", " "]))).map(", ".join),
    uuids=st.lists(UUIDS, min_size=1, unique=True),
    cordoned=st.booleans(),
)
def test_entries_of_others_are_kept(present: str, uuids: list[str], *, cordoned: bool) -> None:
    """Exactly the given cards change, and a second edit changes nothing."""
    new = edited(present, uuids, cordoned=cordoned)
    after = present if new is None else new
    others = [word for word in words(present) if word not in uuids]
    assert [word for word in words(after) if word not in uuids] == others
    assert [uuid in words(after) for uuid in uuids] == [cordoned] * len(uuids)
    assert edited(after, uuids, cordoned=cordoned) is None
