"""Lines of keys in TOML: each key is found where it begins, whatever is around it."""

import tomllib
from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from leasehold.cli.settings.toml_file import KeyPath, lines_of

TEXT = '''\
# a comment = 1
a = 1

b = """
[c]
c = 2
"""
d = [
  "x", # [e]
  ["y"],
]
"e.f" = { g = 1, h = { i = 2 } }
[t]
a = 3   # the same name again
u.v = 4
  [t.w]
  x = \'\'\'
a = 5\'\'\'
[["many"]]
k = 1
[["many"]]
k = 2
l = 3
'''


def test_each_key_is_on_the_line_where_it_begins() -> None:
    assert lines_of(TEXT) == {
        ("a",): 2,
        ("b",): 4,
        ("d",): 8,
        ("e.f",): 12,
        ("e.f", "g"): 12,
        ("e.f", "h"): 12,
        ("e.f", "h", "i"): 12,
        ("t",): 13,
        ("t", "a"): 14,
        ("t", "u"): 15,
        ("t", "u", "v"): 15,
        ("t", "w"): 16,
        ("t", "w", "x"): 17,
        ("many",): 19,
        ("many", "k"): 20,
        ("many", "l"): 23,
    }


def test_windows_lines_and_odd_spaces_are_counted_as_an_editor_does() -> None:
    assert lines_of('a = 1\r\nb = "\u2028"\r\n\r\nc = 3\r\n') == {("a",): 1, ("b",): 2, ("c",): 4}


VALUES = ["1", '"x"', '"""\ny = 1\n[z]\n"""', "[\n1,\n2,\n]", "{ p = 1 }", "'''\n\n'''", "true"]


@given(st.lists(st.tuples(st.integers(0, 3), st.sampled_from(VALUES)), max_size=12))
def test_every_key_that_there_is_has_a_line(statements: list[tuple[int, str]]) -> None:
    lines: list[str] = []
    expected: dict[KeyPath, int] = {}
    table: KeyPath = ()
    for number, (blank, value) in enumerate(statements):
        lines += ["", "# comment", "  "][:blank]
        if blank == 3:
            table = (f"t{number}",)
            lines.append(f"[{table[0]}]")
        expected[(*table, f"k{number}")] = len(lines) + 1
        lines += f"k{number} = {value}".split("\n")
    text = "\n".join(lines)
    found = lines_of(text)
    assert expected.items() <= found.items()
    assert set(_paths(tomllib.loads(text))) == set(found)


def _paths(table: dict[str, Any], parent: KeyPath = ()) -> list[KeyPath]:
    return [
        path
        for key, value in table.items()
        for path in [
            (*parent, key),
            *(_paths(value, (*parent, key)) if isinstance(value, dict) else []),
        ]
    ]
