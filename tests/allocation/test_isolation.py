"""The isolation of a pod: the words of the annotation, and what an unknown one is answered."""

import pytest

from allocation.errors import InvalidFieldError
from allocation.isolation import Isolation, parse
from allocation.names import API_GROUP

KEY = f"{API_GROUP}/isolation"


@pytest.mark.parametrize("word", ["none", "hami-core", "mps", "mig", "cuda"])
def test_each_isolation_is_read_by_its_word(word: str) -> None:
    """The words are those of docs/interfaces.md, and each one is read as the isolation that it names."""
    assert parse(word, key=KEY) == word
    assert isinstance(parse(word, key=KEY), Isolation)


@pytest.mark.parametrize("text", ["", "MPS", "hami", "none "])
def test_an_unknown_isolation_is_refused_with_the_words_that_are_known(text: str) -> None:
    """The error names the annotation, what it holds, and what it may hold."""
    with pytest.raises(InvalidFieldError) as refused:
        parse(text, key=KEY)
    assert str(refused.value) == (
        f'metadata.annotations["{KEY}"] holds {text!r}: it must be one of none, hami-core, mps, mig, cuda;'
        " change it, or remove it"
    )
