"""`kubectl_complete-gpu`: completion candidates for a command line, by kubectl's protocol for plugins.

kubectl runs it with the words after `gpu`; the last word is incomplete. The output has one candidate per line, with a
description after a tab, and ends with `:4` (no file names) or `:0` (complete file names). After an error the output has
no candidates, so that the user is not interrupted.
"""

import argparse
import sys
from collections.abc import Iterator, Sequence
from contextlib import suppress
from typing import Final

from cli import arguments, streams

_FILES, _NO_FILES = 0, 4
_FILE: Final = "FILE"
_GLOBAL: Final = ("kubeconfig", "context", "cluster", "kube_user", "token", "impersonate", "namespace")

Candidates = list[tuple[str, str]]


def main(argv: Sequence[str] | None = None) -> int:
    """Print the candidates for the last word; return the exit code."""
    streams.prepare()
    words = list(sys.argv[1:] if argv is None else argv) or [""]
    offered, directive = candidates(words)
    with suppress(BrokenPipeError):
        print("".join(f"{word}\t{meaning}\n" if meaning else f"{word}\n" for word, meaning in offered), end="")
        print(f":{directive}", flush=True)
    return 0


def candidates(words: Sequence[str]) -> tuple[Candidates, int]:
    """Return the candidates for the last of `words`, with descriptions, and kubectl's directive."""
    *before, typed = words
    line = _Line(arguments.parser())
    for word in before:
        line.take(word)
    prefix = ""
    waiting = line.waiting
    if waiting is None and typed.startswith("--") and "=" in typed:
        flag, _, typed = typed.partition("=")
        waiting, prefix = line.flag(flag), f"{flag}="
    if waiting is None and typed.startswith("-") and not line.only_words:
        return [each for each in line.flags() if each[0].startswith(typed)], _NO_FILES
    if waiting is None:
        waiting = line.positional()
    if waiting is None:
        return [], _NO_FILES
    if waiting.metavar == _FILE:
        return [], _FILES
    offered = [(f"{prefix}{word}", meaning) for word, meaning in _values(waiting, line) if word.startswith(typed)]
    return offered, _NO_FILES


class _Line:
    """The complete words of the line, as the parser reads them.

    Attributes:
        waiting: the flag that takes the next word as its value.
        only_words: whether `--` has ended the flags.
        given: the values so far, by destination.
    """

    def __init__(self, parser: argparse.ArgumentParser) -> None:
        self._parser = parser
        self.waiting: argparse.Action | None = None
        self.only_words = False
        self.given: dict[str, list[str]] = {}
        self._taken = 0

    def take(self, word: str) -> None:
        """Read one word."""
        if self.waiting is not None:
            self.given.setdefault(self.waiting.dest, []).append(word)
            self.waiting = None
        elif word == "--" and not self.only_words:
            self.only_words = True
        elif word.startswith("-") and not self.only_words:
            name, joined, value = word.partition("=")
            action = self.flag(name)
            if action is None:
                return
            if joined:
                self.given.setdefault(action.dest, []).append(value)
            elif action.nargs is None and not isinstance(action, argparse._HelpAction):  # noqa: SLF001 -- argparse has no public name for it
                self.waiting = action
        else:
            self._take_positional(word)

    def _take_positional(self, word: str) -> None:
        action = self.positional()
        if action is None:
            return
        self.given.setdefault(action.dest, []).append(word)
        inner = action.choices.get(word) if isinstance(action.choices, dict) else None
        if isinstance(inner, argparse.ArgumentParser):
            self._parser, self._taken = inner, 0
        elif action.nargs not in ("*", "+"):
            self._taken += 1

    def flag(self, name: str) -> argparse.Action | None:
        """Return the flag of that name."""
        return next((action for action in self._parser._actions if name in action.option_strings), None)  # noqa: SLF001 -- argparse has no public name for it

    def flags(self) -> Iterator[tuple[str, str]]:
        """Return the long name of every flag that may still be given."""
        for action in self._parser._actions:  # noqa: SLF001 -- argparse has no public name for it
            if action.option_strings and (action.dest not in self.given or action.dest not in _GLOBAL):
                yield action.option_strings[-1], action.help or ""

    def positional(self) -> argparse.Action | None:
        """Return the positional argument that comes next."""
        left = [action for action in self._parser._actions if not action.option_strings]  # noqa: SLF001 -- argparse has no public name for it
        return left[self._taken] if self._taken < len(left) else None


def _values(action: argparse.Action, line: _Line) -> Candidates:
    if isinstance(action, argparse._SubParsersAction):  # noqa: SLF001 -- argparse has no public name for it
        return [(each.dest, each.help or "") for each in action._choices_actions]  # noqa: SLF001 -- argparse has no public name for it
    if action.choices is not None:
        return [(str(choice), "") for choice in action.choices]
    from cli.completion import complete_cluster  # noqa: PLC0415 -- commands and flags are completed without a cluster

    ask = complete_cluster.BY_METAVAR.get(str(action.metavar))
    if ask is None:
        return []
    given = line.given.get(action.dest, []) if action.nargs in ("*", "+") else []
    flags = argparse.Namespace(**{dest: line.given.get(dest, [""])[-1] for dest in (*_GLOBAL, complete_cluster.POD)})
    try:
        return [(word, meaning) for word, meaning in ask(flags) if word not in given]
    except Exception:  # noqa: BLE001 -- an error means an empty list, see above
        return []


if __name__ == "__main__":
    sys.exit(main())
