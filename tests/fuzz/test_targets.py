"""Every seed with some mutations, and every input that once broke a target, without atheris."""

import json
import random

import pytest

from fuzz import catalogue, mutator
from tests.support.cases import case

_MUTATIONS = 20
_LARGEST = 64 * 1024

_HOSTILE = (
    b"",
    b"\x00",
    b"\xff\xfe\x00",
    b"\xef\xbb\xbf{}",
    b"[" * 100_000,
    b'{"a":' * 100_000,
    b'{"x":' + b"[" * 50_000 + b"]" * 50_000 + b"}",
    b"- " * 50_000,
    b'{"metadata":' + b"9" * 100_000 + b"}",
    b'"' + b"a" * 1_000_000 + b'"',
    b'{"a":1,"a":2,"metadata":{},"metadata":[]}',
    b'{"a":"\\ud800"}',
    b"a: &a [x, x, x, x]\nb: &b [*a, *a, *a, *a]\nc: &c [*b, *b, *b, *b]\nd: [*c, *c, *c, *c]\n",
    b"&a [*a]",
)


@pytest.mark.parametrize("name", catalogue.NAMES)
def test_every_target_has_seeds(name: str) -> None:
    """The mutator derives the forms of its inputs from them."""
    assert len(catalogue.inputs(name)) > 1


def test_every_folder_of_inputs_has_a_target() -> None:
    """Every input that is kept is tried."""
    folders = {path.name for place in (catalogue.SEEDS, catalogue.FOUND) for path in place.iterdir() if path.is_dir()}
    assert folders <= set(catalogue.NAMES)


@pytest.mark.parametrize("name", catalogue.NAMES)
def test_known_inputs_break_no_target(name: str) -> None:
    """Each input, and each of twenty mutations of a seed, is accepted or rejected as documented."""
    target = catalogue.load(name)
    for path in catalogue.inputs(name):
        with case(path=path):
            content = path.read_bytes()
            target(content)
            if path.is_relative_to(catalogue.FOUND):
                continue
            dice = random.Random(path.name)  # noqa: S311 -- the same mutations each time
            for _ in range(_MUTATIONS):
                target(mutator.mutate(content, _LARGEST, dice, mutator.plain(dice)))


@pytest.mark.parametrize("name", catalogue.NAMES)
def test_malformed_input_breaks_no_target(name: str) -> None:
    """Empty, binary, deeply nested, huge numbers and strings, duplicate keys, lone surrogates, aliases of aliases."""
    target = catalogue.load(name)
    for hostile in _HOSTILE:
        with case(begin=hostile[:12], length=len(hostile)):
            target(hostile)


def test_mutations_keep_the_form() -> None:
    """Otherwise no code behind the decoders would be tried: most of a hundred mutations of a review are still JSON."""
    content = (catalogue.SEEDS / "review" / "slice.json").read_bytes()
    dice = random.Random(1)  # noqa: S311
    mutations = [mutator.mutate(content, _LARGEST, dice, mutator.plain(dice)) for _ in range(100)]
    assert len(set(mutations)) > 90
    assert sum(_is_json(each) for each in mutations) > 60
    assert max(map(len, mutations)) <= _LARGEST


def _is_json(text: bytes) -> bool:
    try:
        json.loads(text)
    except (ValueError, RecursionError):
        return False
    return True
