"""A line of the log is one line, and what is in it can be read by machines."""

import json
import logging
import re
import sys

import pytest
from hypothesis import given
from hypothesis import strategies as st

from cluster.logs import Json, Logfmt

_PAIR = re.compile(r'(\w+)=("(?:[^"\\]|\\.)*"|[^\s="\\]+)(?: |$)')


def record(message: str, **fields: str) -> logging.LogRecord:
    """Answer a record as `log.info(message, extra=fields)` makes it."""
    return logging.makeLogRecord({"name": "scheduler.loop", "levelname": "INFO", "msg": message, "args": (), **fields})


@given(st.text(), st.text())
def test_whatever_comes_from_outside_stays_in_its_field(message: str, pod: str) -> None:
    """No newline, no control character of a terminal, and every field is read back as it was."""
    line = Logfmt().format(record(message, pod=pod))
    assert line.isprintable()
    found = {name: json.loads(value) if value[0] == '"' else value for name, value in _PAIR.findall(line)}
    if message.isprintable() and pod.isprintable():
        assert (found["msg"], found["pod"]) == (message, pod)
    told = json.loads(Json().format(record(message, pod=pod)))
    assert (told["msg"], told["pod"], told["level"]) == (message, pod, "info")


def test_a_sentence_stays_a_sentence() -> None:
    """People read it: only what needs quotes has them."""
    line = Logfmt().format(record("pod a/b waits: 8/8 CardNotHealth", pod="a/b", uid="1-2"))
    assert line.endswith('level=info logger=scheduler.loop msg="pod a/b waits: 8/8 CardNotHealth" pod=a/b uid=1-2')
    assert re.match(r"time=\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{3}Z ", line)


@pytest.mark.parametrize("formatter", [Logfmt(), Json()])
def test_a_traceback_is_part_of_its_line(formatter: logging.Formatter) -> None:
    """It says where the defect is, and splits nothing."""
    try:
        int("defect")
    except ValueError:
        made = record("not done")
        made.exc_info = sys.exc_info()
    line = formatter.format(made)
    assert "\n" not in line
    assert "ValueError: invalid literal" in line
