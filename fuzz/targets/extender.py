"""What kube-scheduler posts: every readable body is answered, each node that was asked about once, fitting or not."""

from contextlib import suppress

import msgspec

from fuzz import world
from scheduler import candidates, extender_api
from scheduler.extender_api import Args, UnreadableError

_STATE = world.state()
_PATHLESS = frozenset("/?#%\\")


def try_bytes(data: bytes) -> None:
    """Post `data` to each verb."""
    try:
        args = extender_api.decode_args(data)
    except UnreadableError as error:
        assert "the body is no ExtenderArgs" in str(error) or "expected a Pod of v1" in str(error)
    else:
        _try_args(args)
        with suppress(UnicodeDecodeError):  # in a part of a node that nobody reads, which is sent back as it came
            data.decode()
            msgspec.json.decode(extender_api.encode(candidates.filter_(_STATE, args)))
    try:
        binding = extender_api.decode_binding(data)
    except UnreadableError as error:
        assert "the body is no ExtenderBindingArgs" in str(error)
    else:
        # They become parts of a path at the API server.
        assert not _PATHLESS.intersection(binding.podname + binding.podnamespace)
        assert binding.podname.strip(".")
        assert binding.podnamespace.strip(".")


def _try_args(args: Args) -> None:
    asked = set(args.names if args.names is not None else [node.metadata.name for node in args.nodes])
    result = candidates.filter_(_STATE, args)
    fitting = (
        set(result.nodenames)
        if result.nodenames is not None
        else {node.metadata.name for node in args.nodes}
        - set(result.failed_nodes)
        - set(result.failed_and_unresolvable_nodes)
    )
    rejected = {*result.failed_nodes, *result.failed_and_unresolvable_nodes}
    assert fitting | rejected == asked
    assert not fitting & rejected
    scores = candidates.prioritize(_STATE, args)
    msgspec.json.decode(extender_api.encode(scores))
    assert {each.host for each in scores} == asked
    assert all(0 <= each.score <= candidates.BEST for each in scores)
