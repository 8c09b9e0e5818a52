"""Every seed, every input that once broke something, and some neighbours of each, without atheris."""

import json
import random
from pathlib import Path

import pytest

from fuzz import catalogue, mutator

_NEIGHBOURS = 20
_LARGEST = 64 * 1024


@pytest.mark.parametrize("name", catalogue.NAMES)
def test_every_target_has_seeds(name: str) -> None:
    """From which it finds the forms that it reads."""
    assert len(catalogue.inputs(name)) > 1


def test_every_folder_of_inputs_has_a_target() -> None:
    """What is kept is tried."""
    folders = {path.name for place in (catalogue.SEEDS, catalogue.FOUND) for path in place.iterdir() if path.is_dir()}
    assert folders <= set(catalogue.NAMES)


@pytest.mark.parametrize(
    ("name", "path"),
    [pytest.param(name, path, id=f"{name}-{path.name}") for name in catalogue.NAMES for path in catalogue.inputs(name)],
)
def test_inputs_are_answered(name: str, path: Path) -> None:
    """With an answer or a refusal that is documented, as are twenty neighbours of each seed."""
    target, content = catalogue.load(name), path.read_bytes()
    target(content)
    if path.is_relative_to(catalogue.FOUND):
        return
    dice = random.Random(path.name)  # noqa: S311 -- the same neighbours each time
    for _ in range(_NEIGHBOURS):
        target(mutator.mutate(content, _LARGEST, dice, mutator.plain(dice)))


@pytest.mark.parametrize("name", catalogue.NAMES)
@pytest.mark.parametrize(
    "hostile",
    [
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
    ],
    ids=lambda body: f"{body[:12]!r}-{len(body)}",
)
def test_what_no_form_has_is_refused(name: str, hostile: bytes) -> None:
    """Nothing, no text, endless nesting, numbers and strings, keys twice, halves of characters, aliases of aliases."""
    catalogue.load(name)(hostile)


def test_neighbours_are_of_the_same_form() -> None:
    """Else nothing behind the decoders would be tried: of a hundred changes of a review most are JSON still."""
    content = (catalogue.SEEDS / "review" / "slice.json").read_bytes()
    dice = random.Random(1)  # noqa: S311
    made = [mutator.mutate(content, _LARGEST, dice, mutator.plain(dice)) for _ in range(100)]
    assert len(set(made)) > 90
    assert sum(_is_json(each) for each in made) > 60
    assert max(map(len, made)) <= _LARGEST


def _is_json(text: bytes) -> bool:
    try:
        json.loads(text)
    except (ValueError, RecursionError):
        return False
    return True
