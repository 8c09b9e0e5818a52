"""What an error tells about the request: whether it may have taken effect, and whether to repeat it."""

import pytest

from cluster.errors import ClusterError, UnreachableError, from_answer


@pytest.mark.parametrize(
    ("status", "is_doubtful", "is_transient"),
    [
        (400, False, False),
        (403, False, False),
        (404, False, False),
        (409, False, False),
        (422, False, False),
        (429, False, True),
        (500, True, True),
        (503, True, True),
        (504, True, True),
    ],
)
def test_an_error_of_the_server_leaves_the_outcome_open(status: int, is_doubtful: bool, is_transient: bool) -> None:  # noqa: FBT001
    """A refusal does not; the API server did not execute what it answers with 429, and may do so later."""
    error = from_answer(request="POST", status=status, body=b"")
    assert (error.is_doubtful, error.is_transient) == (is_doubtful, is_transient)


@pytest.mark.parametrize("error", [UnreachableError("the connection was cut"), ClusterError("no credentials")])
def test_without_a_response_the_outcome_is_open(error: ClusterError) -> None:
    """The request may be repeated."""
    assert (error.is_doubtful, error.is_transient) == (True, True)
