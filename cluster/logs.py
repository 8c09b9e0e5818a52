"""How every process of ours writes its log: one line for each record, as logfmt or as JSON, on standard error.

A record's `extra` gives the fields of its line, such as `pod` and `uid`; the message stays a sentence for people. What
comes from outside may hold anything: a line is never broken by it, and no terminal is steered by it.
"""

import json
import logging
import re
import sys
from collections.abc import Iterator
from datetime import UTC, datetime
from typing import Any, Final, Literal

import msgspec

_STANDARD: Final = frozenset(vars(logging.makeLogRecord({}))) | {"message", "asctime"}
_BARE: Final = re.compile(r'[^\s="\\]+')


class LogSettings(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """What an administrator may decide about logs.

    Attributes:
        level: the least that is written.
        format: `logfmt`, which people read easily, or `json`.
    """

    level: Literal["debug", "info", "warning", "error"] = "info"
    format: Literal["logfmt", "json"] = "logfmt"


class _Formatter(logging.Formatter):
    """The fields of a record, the same in either format."""

    def _fields(self, record: logging.LogRecord) -> Iterator[tuple[str, Any]]:
        at = datetime.fromtimestamp(record.created, UTC)
        yield "time", at.isoformat(timespec="milliseconds").replace("+00:00", "Z")
        yield "level", record.levelname.lower()
        yield "logger", record.name
        yield "msg", record.getMessage()
        for name, value in vars(record).items():
            if name not in _STANDARD:
                yield name, value
        if record.exc_info:
            yield "exception", self.formatException(record.exc_info)


class Logfmt(_Formatter):
    """`time=… level=info logger=scheduler.loop msg="pod a/b waits: …" pod=a/b uid=…`."""

    def format(self, record: logging.LogRecord) -> str:
        """Answer the line."""
        return " ".join(f"{name}={_quoted(str(value))}" for name, value in self._fields(record))


class Json(_Formatter):
    """The same as an object."""

    def format(self, record: logging.LogRecord) -> str:
        """Answer the line."""
        return json.dumps(dict(self._fields(record)), default=str)


def set_up(settings: LogSettings) -> None:
    """Have this process write its log so from now on."""
    handler = logging.StreamHandler(sys.stderr)
    handler.setFormatter(Json() if settings.format == "json" else Logfmt())
    logging.basicConfig(level=settings.level.upper(), handlers=[handler], force=True)


def _quoted(text: str) -> str:
    if _BARE.fullmatch(text) and text.isprintable():
        return text
    quoted = json.dumps(text, ensure_ascii=False)
    if quoted.isprintable():
        return quoted
    return "".join(each if each.isprintable() else json.dumps(each)[1:-1] for each in quoted)
