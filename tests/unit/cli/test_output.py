"""What the commands for clients print."""

import base64
import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from leasehold.cli import output


@given(st.binary())
def test_bytes_in_json_are_text_or_base64_and_come_back(data: bytes) -> None:
    shown = json.loads(json.dumps(output.named("value", data), ensure_ascii=False))
    if "value" in shown:
        assert shown["value"].encode() == data
    else:
        assert base64.b64decode(shown["value_base64"], validate=True) == data
        with pytest.raises(UnicodeDecodeError):
            data.decode()


@given(st.binary())
def test_bytes_for_people_are_one_line_without_controls(data: bytes) -> None:
    shown = output.shown_bytes(data)
    assert shown.isprintable() or not any(ord(each) < 32 or ord(each) == 127 for each in shown)
    assert len(shown) < output.MAX_SHOWN_CHARS + 30


def test_a_table_is_aligned_and_says_nothing_with_a_dash() -> None:
    assert output.table(("A", "LONG", "C"), [(1, None, "x y"), ("much", "", 0)]) == [
        "A     LONG  C",
        "1     -     x y",
        "much  -     0",
    ]


def test_numbers_in_json_have_no_needless_fraction() -> None:
    assert json.dumps([output.number(30.0), output.number(1.5)]) == "[30, 1.5]"


def test_json_is_a_document_a_line_in_utf_8(capsysbinary: pytest.CaptureFixture[bytes]) -> None:
    output.emit_json({"key": "grüße\n"}, {"n": 1})
    assert capsysbinary.readouterr().out == '{"key": "grüße\\n"}\n{"n": 1}\n'.encode()


def test_what_a_person_sees_harms_no_terminal(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    assert output.raw_or_shown(b"\x1b[2J") == b"\x1b[2J\n"
    monkeypatch.setattr(output, "is_terminal", lambda: True)
    assert output.raw_or_shown(b"\x1b[2J") == b"\\x1b[2J\n"


def test_each_line_is_one_line_without_control_characters(
    capsys: pytest.CaptureFixture[str],
) -> None:
    output.emit_lines(["a\nb\x1b[2J\u2028\x9b", "plain ümlaut"])
    assert capsys.readouterr().out == "a\\nb\\x1b[2J\\u2028\\x9b\nplain ümlaut\n"
