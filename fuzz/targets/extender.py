"""Extender calls: every readable body gets a response in which each requested node occurs exactly once."""

from contextlib import suppress

import msgspec

from allocation.steps import finish
from fuzz import world
from scheduler.extender import filtering, wire
from scheduler.extender.wire import Args, UnreadableError

_STATE = world.state()
_PATHLESS = frozenset("/?#%\\")


def try_bytes(data: bytes) -> None:
    """Post `data` to each verb."""
    try:
        args = wire.decode_args(data)
    except UnreadableError as error:
        assert "the body is not an ExtenderArgs" in str(error) or "expected a Pod of v1" in str(error)
    else:
        _try_args(args)
        with suppress(UnicodeDecodeError):  # in an unread part of a node, which is sent back unchanged
            data.decode()
            msgspec.json.decode(wire.encode(finish(filtering.filter_(_STATE, args))))
    try:
        binding = wire.decode_binding(data)
    except UnreadableError as error:
        assert "the body is not an ExtenderBindingArgs" in str(error)
    else:
        # The names become parts of a URL path of the API server.
        assert not _PATHLESS.intersection(binding.podname + binding.podnamespace)
        assert binding.podname.strip(".")
        assert binding.podnamespace.strip(".")


def _try_args(args: Args) -> None:
    requested = set(args.names if args.names is not None else [node.metadata.name for node in args.nodes])
    result = finish(filtering.filter_(_STATE, args))
    fitting = (
        set(result.nodenames)
        if result.nodenames is not None
        else {node.metadata.name for node in args.nodes}
        - set(result.failed_nodes)
        - set(result.failed_and_unresolvable_nodes)
    )
    rejected = {*result.failed_nodes, *result.failed_and_unresolvable_nodes}
    assert fitting | rejected == requested
    assert not fitting & rejected
    scores = finish(filtering.prioritize(_STATE, args))
    msgspec.json.decode(wire.encode(scores))
    assert {each.host for each in scores} == requested
    assert all(0 <= each.score <= filtering.BEST for each in scores)
