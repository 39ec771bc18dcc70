"""How events come in responses: clients look at the first response, and expect the past in it."""

from typing import Any

import pytest

from tests.conformance.client import Client, put_op
from tests.conformance.test_watch_history import begin, put


@pytest.mark.parametrize("more", [{}, {"prev_kv": True}, {"fragment": True}], ids=str)
def test_the_revisions_that_a_watch_has_missed_come_in_one_response(
    client: Client, key: bytes, more: dict[str, Any]
) -> None:
    start = client.put(key, b"1").header.revision
    client.put(key, b"2")
    client.txn([], [put_op(key, b"3"), put_op(key + b"other", b"3")])
    client.put(key, b"4")
    with client.watch() as watch:
        begin(watch, key, start_revision=start, **more)
        events = watch.receive().events
    for event in events:
        event.ClearField("prev_kv")
    expected = [put(key, b"%d" % (i + 1), start, start + i, i + 1) for i in range(4)]
    assert list(events) == expected


def test_a_change_after_the_past_comes_by_itself(client: Client, key: bytes) -> None:
    start = client.put(key, b"1").header.revision
    client.put(key, b"2")
    with client.watch() as watch:
        begin(watch, key, start_revision=start)
        assert len(watch.receive().events) == 2
        client.put(key, b"3")
        client.put(key, b"4")
        assert [event.kv.value for event in watch.receive().events] == [b"3"]
        assert [event.kv.value for event in watch.receive().events] == [b"4"]
