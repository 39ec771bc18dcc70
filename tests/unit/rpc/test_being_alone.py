"""A connection is alone while no other says anything, however many there are."""

from typing import cast

from leasehold.rpc.gate import Gate
from leasehold.rpc.server import ALONE_COMMITS, ServerProtocol, Site
from leasehold.rpc.web import PagesOnly


def _site(connections: int) -> tuple[Site, list[ServerProtocol]]:
    site = Site(methods={}, web=PagesOnly({}), gate=Gate(), enter=lambda: None)
    there = [cast(ServerProtocol, object()) for _ in range(connections)]
    for each in there:
        site.arrived(each)
    return site, there


def test_one_connection_is_alone_at_once() -> None:
    site, (one,) = _site(1)
    site.last_heard = one
    assert site.is_alone()


def test_one_of_several_is_alone_after_a_while_and_until_another_speaks() -> None:
    site, (one, other, _) = _site(3)
    site.last_heard = one
    assert not any(site.is_alone() for _ in range(ALONE_COMMITS))
    assert site.is_alone()
    site.last_heard = other
    assert not site.is_alone()
    site.last_heard = one
    assert not site.is_alone()


def test_two_who_take_turns_are_never_alone() -> None:
    site, pair = _site(2)
    for number in range(4 * ALONE_COMMITS):
        site.last_heard = pair[number % 2]
        assert not site.is_alone()
