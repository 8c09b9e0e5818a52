"""How every process of ours writes its log: one line for each record, as logfmt or as JSON, on standard error.

A record's `extra` gives the fields of its line, such as `pod` and `uid`; the message stays a sentence for people. What
comes from outside may hold anything: a line is never broken by it, and no terminal is steered by it.
"""

import functools
import json
import logging
import re
import sys
import time
from itertools import islice
from typing import Any, Final, Literal

import msgspec

_STANDARD: Final = len(vars(logging.makeLogRecord({})))
"""Attributes that every record has, before those of its `extra`."""
_FORMATTED: Final = ("message", "asctime")  # another handler's formatter leaves them
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

    def _fields(self, record: logging.LogRecord) -> dict[str, Any]:
        fields = {
            "time": f"{_second(int(record.created))}.{int(record.msecs):03d}Z",
            "level": record.levelname.lower(),
            "logger": record.name,
            "msg": record.getMessage(),
        }
        fields.update(islice(vars(record).items(), _STANDARD, None))
        for name in _FORMATTED:
            fields.pop(name, None)
        if record.exc_info:
            fields["exception"] = self.formatException(record.exc_info)
        return fields


class Logfmt(_Formatter):
    """`time=… level=info logger=scheduler.loop msg="pod a/b waits: …" pod=a/b uid=…`."""

    def format(self, record: logging.LogRecord) -> str:
        """Answer the line."""
        return " ".join(f"{name}={_quoted(str(value))}" for name, value in self._fields(record).items())


class Json(_Formatter):
    """The same as an object."""

    def format(self, record: logging.LogRecord) -> str:
        """Answer the line."""
        return json.dumps(self._fields(record), default=str)


def set_up(settings: LogSettings) -> None:
    """Have this process write its log so from now on."""
    handler = logging.StreamHandler(sys.stderr)
    handler.setFormatter(Json() if settings.format == "json" else Logfmt())
    logging.basicConfig(level=settings.level.upper(), handlers=[handler], force=True)


@functools.lru_cache(2)
def _second(unix: int) -> str:
    return time.strftime("%Y-%m-%dT%H:%M:%S", time.gmtime(unix))


def _quoted(text: str) -> str:
    if _BARE.fullmatch(text) and text.isprintable():
        return text
    quoted = json.dumps(text, ensure_ascii=False)
    if quoted.isprintable():
        return quoted
    return "".join(each if each.isprintable() else json.dumps(each)[1:-1] for each in quoted)
