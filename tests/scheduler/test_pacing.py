"""What has to be one step is not interrupted: a computation that yields there gets an error."""

import pytest

from allocation.steps import Exclusive, InterruptionError, Steps, finish
from scheduler.pacing import Pacer


def interrupted(ended: list[str]) -> Steps[str]:
    """Yield inside of what has to be one step."""
    try:
        with Exclusive("checking and reserving"):
            yield
    finally:
        ended.append("ended")
    return "done"


async def test_a_computation_that_yields_inside_one_step_gets_an_error() -> None:
    """The error is raised where it yields and names what was being done; the next computation may run."""
    ended: list[str] = []
    message = "checking and reserving has to be one step, so nothing may yield before its end"
    with pytest.raises(InterruptionError, match=message):
        await Pacer().run(interrupted(ended))
    assert ended == ["ended"]

    def ordinary() -> Steps[str]:
        yield
        with Exclusive("checking and reserving"):
            pass
        yield
        return "done"

    assert await Pacer().run(ordinary()) == "done"


async def test_what_is_finished_in_one_step_may_have_steps() -> None:
    """They are not interrupted, so they may be run inside of it."""

    def steps() -> Steps[str]:
        yield
        return "done"

    def computation() -> Steps[str]:
        yield
        with Exclusive("checking and reserving"):
            return finish(steps())

    assert await Pacer().run(computation()) == "done"
