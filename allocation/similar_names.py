"""Finds the name that was probably meant by one that is misspelled."""

from collections.abc import Iterable
from difflib import get_close_matches
from typing import Final

_MIN_SIMILARITY: Final = 0.75
"""Of 1: `gpumemory`, `gpu-memory` and `gpucore` are at least this similar to ours; names of other devices are less."""
_MOST_CHARACTERS: Final = 64


def closest(name: str, known: Iterable[str]) -> str:
    """Return the resource of `known` that `name` probably means, or an empty string; domains are not compared."""
    written = _suffix(name).lower()
    suffixes = {_suffix(each): each for each in known}
    candidates = [each for each in suffixes if each[:1] == written[:1]]  # `vgpu` does not mean `gpu`
    if len(written) > _MOST_CHARACTERS:
        return ""
    matches = get_close_matches(written, candidates, n=1, cutoff=_MIN_SIMILARITY)
    return suffixes[matches[0]] if matches else ""


def _suffix(name: str) -> str:
    return name.rpartition("/")[2]
