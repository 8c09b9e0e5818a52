"""YAML of people, and of attackers: what is ambiguous, large or deep is refused with its place."""

import pytest

from cluster import yaml_documents
from cluster.yaml_documents import Loader, UnreadableDocumentError, load, require_shallow


class _WithoutAliases(Loader):
    most_copies = 0


class _FewCopies(Loader):
    most_copies = 3


def test_dates_are_text() -> None:
    """JSON has no dates: a version that looks like one stays what was written."""
    assert load("{a: 2020-01-01, b: 2020-01-01T10:00:00Z}") == {"a": "2020-01-01", "b": "2020-01-01T10:00:00Z"}


def test_aliases_are_copies() -> None:
    """A change of one does not change the others, and merge keys work."""
    content = load("a: &x {n: [1]}\nb: *x\nc: {<<: *x, m: 2}\n")
    content["a"]["n"].append(2)
    assert content == {"a": {"n": [1, 2]}, "b": {"n": [1]}, "c": {"n": [1], "m": 2}}


def test_copies_are_limited() -> None:
    """Nine lines of aliases mean a billion values otherwise."""
    lines = ["a0: &a0 [x, x, x, x, x, x, x, x, x, x]"]
    lines += [f"a{n}: &a{n} [{', '.join([f'*a{n - 1}'] * 10)}]" for n in range(1, 9)]
    with pytest.raises(UnreadableDocumentError, match="aliases add more than 100000 values"):
        load("\n".join(lines))
    assert load("[&a [1, 2], *a]", loader=_FewCopies) == [[1, 2], [1, 2]]
    with pytest.raises(UnreadableDocumentError, match="aliases add more than 3 values"):
        load("[&a [1, 2, 3], *a]", loader=_FewCopies)


def test_a_reader_may_refuse_aliases() -> None:
    """Anchors alone are accepted."""
    assert load("[&a 1, 2]", loader=_WithoutAliases) == [1, 2]
    with pytest.raises(UnreadableDocumentError, match="line 1, column 2: it has an alias; write each part out"):
        load("[&a 1, *a]", loader=_WithoutAliases)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("a: 1\nb: {c: 1, c: 2}\n", "line 12, column 11: duplicate key 'c'; remove one"),
        ("a: [\n", "line 12, column 1: "),
        ("a: &x [*x]\n", "recursive"),
        ("a: \x07\n", "special characters are not allowed"),
        ("a: !!python/object:os.system x\n", "could not determine a constructor"),
        ("? [a]\n: b\n", "unhashable"),
        ("a: " + "[" * 200 + "]" * 200, "nested deeper than 100 levels"),
        ("a: " + "[" * 20_000, "nested deeper than 100 levels"),
        (b"a: \xff\n", "invalid start byte"),
        ("a: 2" + "0" * 5000 + "\n", "Exceeds the limit"),
    ],
)
def test_an_unreadable_text_is_refused_with_its_place(text: str | bytes, message: str) -> None:
    """One line, in which lines are counted from the beginning of the file."""
    with pytest.raises(UnreadableDocumentError, match=message) as error:
        load(text, lines_before=10)
    assert "\n" not in str(error.value)


def test_depth_is_limited_for_decoded_content_too() -> None:
    """The deepest level is that of a value which is not a container."""
    content: object = 1
    for _ in range(yaml_documents.DEEPEST - 1):
        content = [content]
    require_shallow(content)
    with pytest.raises(UnreadableDocumentError):
        require_shallow([content])


@pytest.mark.parametrize("value", ["!!int _", "!!int ''", "!!bool maybe"])
def test_a_value_that_does_not_fit_its_tag_is_an_error_with_its_line(value: str) -> None:
    """PyYAML itself fails with an error of Python's."""
    with pytest.raises(UnreadableDocumentError, match="line 2, column 4: the value does not fit its tag"):
        load(f"a: 1\nb: {value}\n")
