"""A problem that is reported again and again is logged when it begins and when it ends."""

import logging

import pytest

from cluster.log_once import LogOnce


def test_a_problem_is_logged_when_it_begins_changes_and_ends(caplog: pytest.LogCaptureFixture) -> None:
    """And each time that it begins again."""
    caplog.set_level(logging.INFO)
    problems = LogOnce()
    for problem in ("", "gone", "gone", "lost", "", "", "gone"):
        problems.report("card 0", problem)
    assert [each.getMessage() for each in caplog.records] == [
        *("card 0: gone", "card 0: lost", "card 0: recovered", "card 0: gone"),
    ]


def test_nothing_is_kept_of_a_subject_without_a_problem() -> None:
    """Subjects come and go with containers, for as long as a node runs."""
    problems = LogOnce()
    for number in range(100):
        problems.report(f"container {number}", "refused")
        problems.report(f"container {number}", "")
    problems.report("container 100", "refused")
    problems.forget("container 100")
    problems.forget("container 101")
    assert problems._problems == {}
