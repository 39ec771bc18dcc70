"""A fence in memory: which tokens pass, in one thread and in many."""

import pickle
import sys
import threading
from collections.abc import Callable

import pytest
from hypothesis import given
from hypothesis import strategies as st

from leasehold.errors import StaleToken, Status, is_definite
from leasehold.fencing import Fence
from leasehold.fencing.token import MAX_PART, Token

DEADLINE_S = 30.0

few = st.integers(min_value=0, max_value=5)
shown = st.one_of(st.builds(Token, few, few), few)


def test_a_higher_token_passes_and_is_remembered() -> None:
    fence = Fence()
    for token in (Token(4, 1), Token(4, 2), Token(9, 1)):
        fence.admit(token)
        assert fence.seen == token


def test_an_equal_token_passes_since_a_holder_writes_often() -> None:
    fence = Fence()
    fence.admit(Token(4, 1))
    fence.admit(Token(4, 1))


@pytest.mark.parametrize("old", [Token(3, 9), Token(4, 1), 4, 3])
def test_a_lower_token_is_refused_and_changes_nothing(old: Token | int) -> None:
    fence = Fence()
    fence.admit(Token(4, 2))
    with pytest.raises(StaleToken):
        fence.admit(old)
    assert fence.seen == Token(4, 2)
    fence.admit(Token(4, 2))


def test_the_error_says_what_was_shown_what_was_seen_and_what_to_do() -> None:
    fence = Fence(name="the warehouse")
    fence.admit(Token(58, 1))
    with pytest.raises(StaleToken) as caught:
        fence.admit(Token(41, 3))
    error = caught.value
    assert (error.token, error.seen, error.resource) == (
        Token(41, 3),
        Token(58, 1),
        "the warehouse",
    )
    assert str(error) == (
        "the warehouse refused token 41-3: it has already seen the higher token 58-1, so another "
        "holder has acquired the lock since; discard this write, acquire the lock again and start "
        "over from the current state"
    )
    assert error.status is Status.FAILED_PRECONDITION
    assert is_definite(error)
    again = pickle.loads(pickle.dumps(error))  # noqa: S301  our own bytes
    assert (str(again), again.args, vars(again)) == (str(error), error.args, vars(error))


def test_an_int_is_the_lowest_token_of_its_revision() -> None:
    fence = Fence()
    fence.admit(7)
    assert fence.seen == Token(7, 0)
    fence.admit(7)
    fence.admit(Token(7, 1))
    with pytest.raises(StaleToken):
        fence.admit(7)
    fence.admit(8)


def test_a_fence_goes_on_from_what_was_seen_before() -> None:
    with pytest.raises(StaleToken):
        Fence(Token(4, 2)).admit(Token(4, 1))
    with pytest.raises(StaleToken):
        Fence(seen=5).admit(4)


@pytest.mark.parametrize("bad", [None, True, 4.0, b"4", (4, 1), "4-1", Token("4", 1)])  # type: ignore[arg-type]
def test_what_is_no_token_is_a_type_error(bad: object) -> None:
    with pytest.raises(TypeError):
        Fence().admit(bad)  # type: ignore[arg-type]


def test_text_is_refused_with_the_advice_to_parse_it() -> None:
    with pytest.raises(TypeError, match=r"not '4-1'; read it with Token\.parse"):
        Fence().admit("4-1")  # type: ignore[arg-type]


@pytest.mark.parametrize("bad", [-1, MAX_PART + 1, Token(1, -1), Token(-1, 1), Token(1, 2**64)])
def test_a_part_that_no_token_has_is_a_value_error(bad: Token | int) -> None:
    with pytest.raises(ValueError, match="parts from 0 to"):
        Fence().admit(bad)
    with pytest.raises(ValueError, match="seen must have parts"):
        Fence(bad)


def test_a_token_counts_as_seen_also_if_its_block_fails() -> None:
    fence = Fence()
    with pytest.raises(ZeroDivisionError), fence.admitted(Token(5, 1)):
        raise ZeroDivisionError
    assert fence.seen == Token(5, 1)
    with pytest.raises(StaleToken):
        fence.admit(Token(4, 9))
    fence.admit(Token(5, 1))


def test_a_block_of_a_refused_token_is_not_run() -> None:
    fence = Fence(5)
    ran = False
    with pytest.raises(StaleToken), fence.admitted(4):
        ran = True
    assert not ran


def test_no_token_is_admitted_by_a_thread_that_is_in_a_block() -> None:
    fence = Fence(name="the warehouse")
    with (
        fence.admitted(4),
        pytest.raises(RuntimeError, match="the warehouse is already in a block"),
    ):
        fence.admit(5)
    assert fence.seen == Token(4, 0)
    fence.admit(5)


def test_another_thread_is_admitted_after_the_block_and_not_within() -> None:
    fence = Fence()
    order: list[str] = []
    begun = threading.Event()

    def later_holder() -> None:
        begun.set()
        fence.admit(5)
        order.append("later")

    other = threading.Thread(target=later_holder)
    with fence.admitted(4):
        other.start()
        assert begun.wait(DEADLINE_S)
        other.join(0.05)  # without the fence it would be through in a moment
        assert other.is_alive()
        assert fence.seen == Token(4, 0)
        order.append("earlier")
    other.join(DEADLINE_S)
    assert order == ["earlier", "later"]


@given(st.lists(shown))
def test_of_any_order_of_tokens_those_that_pass_never_go_down(tokens: list[Token | int]) -> None:
    fence = Fence()
    passed: list[Token] = []
    for token in tokens:
        meant = token if isinstance(token, Token) else Token(token, 0)
        highest = max(passed, default=Token(0, 0))
        if meant < highest:
            with pytest.raises(StaleToken) as refused:
                fence.admit(token)
            assert refused.value.seen == highest
        else:
            fence.admit(token)
            passed.append(meant)
    assert passed == sorted(passed)
    assert fence.seen == max(passed, default=Token(0, 0))


def _write_from_many_threads(write: Callable[[Token], None]) -> None:
    """Write with each of many tokens, each thread with its own, from low to high.

    The threads change often, but only once all have started: a thread that starts in the middle of
    the start of another one cannot install the trace function of a coverage tool.
    """
    start = threading.Barrier(8, action=lambda: sys.setswitchinterval(1e-6))
    before = sys.getswitchinterval()

    def holder(number: int) -> None:
        start.wait(DEADLINE_S)
        for revision in range(300):
            write(Token(revision, number))

    threads = [threading.Thread(target=holder, args=(number,)) for number in range(8)]
    try:
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join(DEADLINE_S)
            assert not thread.is_alive()
    finally:
        sys.setswitchinterval(before)


def test_of_many_threads_no_write_comes_after_one_with_a_higher_token() -> None:
    fence = Fence()
    written: list[Token] = []

    def write(token: Token) -> None:
        try:
            with fence.admitted(token):
                written.append(token)
        except StaleToken:
            pass

    _write_from_many_threads(write)
    assert written == sorted(written)
    assert written[-1] == Token(299, 7) == fence.seen


def test_without_a_fence_the_same_threads_write_in_a_wrong_order() -> None:
    """The test above would find it: here is a resource that takes everything."""
    written: list[Token] = []
    _write_from_many_threads(written.append)
    assert written != sorted(written)


def test_a_fence_says_what_it_has_seen() -> None:
    assert repr(Fence(Token(58, 1), name="the warehouse")) == "<Fence 'the warehouse', seen 58-1>"
