"""Manifests keep the text of their unchanged parts."""

import textwrap

import pytest
import yaml

from cli.manifests import manifest
from cluster.manifest import UnreadableManifestError


def text(indented: str) -> str:
    """Return a text without its indentation."""
    return textwrap.dedent(indented).lstrip("\n")


def rewritten(source: str) -> str:
    """Print every document as if it had changed."""
    documents = manifest.read(source)
    for document in documents:
        document.changed = True
    return manifest.in_yaml(documents)


MANY = text("""
    # a header
    ---
    a: 1   # a comment
    ---  # another
    {b: [1, 2]}
    ---
    ---
    - c
""")


def test_documents_keep_their_text() -> None:
    """Comments, spaces and styles are kept; empty documents are left out."""
    assert [document.content for document in manifest.read(MANY)] == [None, {"a": 1}, {"b": [1, 2]}, ["c"]]
    assert manifest.in_yaml(manifest.read(MANY)) == "# a header\n---\na: 1   # a comment\n---\n{b: [1, 2]}\n---\n- c\n"


SCALARS = text("""
    quoted: "1e3"
    single: 'yes'
    plain: 1e3
    date: 2020-01-01
    number: 0x10
    fraction: 0.50
    nothing: null
    truth: true
    block: |
      two
      lines
    "key": ~
    long: "{}"
    unicode: größer
""").replace("{}", "x " * 200)


def test_scalars_keep_their_style() -> None:
    """Other tools read "1e3" as a string and 1e3 as a number; PyYAML reads both as strings."""
    expected = SCALARS.replace("~", "null")
    assert rewritten(SCALARS) == expected
    assert rewritten(expected) == expected


def test_order_of_keys_is_kept() -> None:
    """A printed manifest can be compared with the original."""
    source = "b: 1\na: 2\nc:\n  z: 1\n  y: 2\n"
    assert rewritten(source) == source


def test_aliases_become_separate_objects() -> None:
    """A change of one does not change the others."""
    [document] = manifest.read("a: &x {n: [1]}\nb: *x\nc: {<<: *x, m: 2}\n")
    document.content["a"]["n"].append(2)
    assert document.content == {"a": {"n": [1, 2]}, "b": {"n": [1]}, "c": {"n": [1], "m": 2}}
    assert "&" not in rewritten("a: &x [1]\nb: *x\n")


def test_json_documents_follow_one_another() -> None:
    """They are read and printed one after the other, as by kubectl."""
    source = '{"a": 1}\n{"b":\n 2.50}'
    documents = manifest.read(source)
    assert [document.content for document in documents] == [{"a": 1}, {"b": 2.5}]
    assert manifest.in_yaml(documents) == '{"a": 1}\n---\n{"b":\n 2.50}\n'
    assert manifest.in_json(documents) == '{\n  "a": 1\n}\n{\n  "b": 2.5\n}\n'
    assert [each.content for each in manifest.read(manifest.in_json(documents))] == [{"a": 1}, {"b": 2.5}]


def test_flow_mapping_is_read_as_yaml() -> None:
    """A flow mapping begins with a brace, like JSON."""
    assert [document.content for document in manifest.read("{a: 1}\n---\nb: 2\n")] == [{"a": 1}, {"b": 2}]


@pytest.mark.parametrize(
    ("source", "message"),
    [
        ("a: 1\n---\nb: [\n", "line 4, column 1"),
        ("a: 1\n---\n\nb: }\n", "line 4, column 4"),
        ("a: *x\n", "line 1, column 4: found undefined alias"),
        ("a: &x [*x]\n", "recursive"),
        ("a: !!python/object:os.system x\n", "could not determine a constructor"),
        ("a: \x07\n", "special characters are not allowed"),
        ("? [a]\n: b\n", "unhashable"),
    ],
)
def test_error_has_line_and_column(source: str, message: str) -> None:
    """Lines are counted from the beginning of the file."""
    with pytest.raises(UnreadableManifestError, match=message):
        manifest.read(source)


def test_output_has_the_same_meaning() -> None:
    """Another YAML reader gets the same content."""
    assert yaml.safe_load(rewritten(SCALARS)) == yaml.safe_load(SCALARS)


def test_the_plain_content_is_that_of_json() -> None:
    """Its scalars can be decoded like those of the API server; what JSON does not have is a text."""
    (document,) = manifest.read("a: 0x10\nb: 'yes'\nc: 0.50\nd: !!binary aGk=\n")
    assert document.plain == {"a": 16, "b": "yes", "c": 0.5, "d": "b'hi'"}
    assert {type(each) for each in document.plain.values()} == {int, str, float}
