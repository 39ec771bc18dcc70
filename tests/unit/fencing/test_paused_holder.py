"""The story that fencing is for, told of each resource: with a fence, and without.

Anna has the lock, is paused over the end of her lease, and goes on when Bert has it. Each story is
told of a resource without a fence as well, and does end badly there: so the test would find a fence
that is not one.
"""

import contextlib
import sqlite3
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Protocol

import pytest

from leasehold.errors import StaleToken
from leasehold.fencing import Fence, FencedFile, fenced, make_fence_table
from leasehold.fencing.token import Token

ANNA, BERT = Token(41, 1), Token(58, 1)


class Stock(Protocol):
    """How many are left: a number that holders of a lock read, and write."""

    def read(self, token: Token) -> int: ...

    def write(self, left: int, token: Token) -> None: ...


class InMemory:
    def __init__(self, _: Path) -> None:
        self.left = 10

    def read(self, token: Token) -> int:
        del token
        return self.left

    def write(self, left: int, token: Token) -> None:
        del token
        self.left = left


class FencedInMemory(InMemory):
    def __init__(self, _: Path) -> None:
        super().__init__(_)
        self._fence = Fence()

    def read(self, token: Token) -> int:
        with self._fence.admitted(token):
            return super().read(token)

    def write(self, left: int, token: Token) -> None:
        with self._fence.admitted(token):
            super().write(left, token)


class InFile:
    def __init__(self, directory: Path) -> None:
        self.path = directory / "stock"
        self.path.write_text("10")

    def read(self, token: Token) -> int:
        del token
        return int(self.path.read_text())

    def write(self, left: int, token: Token) -> None:
        del token
        self.path.write_text(str(left))


class FencedInFile(InFile):
    def read(self, token: Token) -> int:
        FencedFile(self.path).admit(token)
        return super().read(token)

    def write(self, left: int, token: Token) -> None:
        FencedFile(self.path).write(str(left), token)


class InDatabase:
    def __init__(self, directory: Path) -> None:
        self._path = directory / "stock.db"
        with self._connection() as connection:
            connection.execute("CREATE TABLE stock (remaining INTEGER)")
            connection.execute("INSERT INTO stock VALUES (10)")
            connection.commit()
            make_fence_table(connection)

    def _connection(self) -> contextlib.closing[sqlite3.Connection]:
        return contextlib.closing(sqlite3.connect(self._path))

    @contextlib.contextmanager
    def _transaction(self, token: Token) -> Iterator[sqlite3.Cursor]:
        del token
        with self._connection() as connection:
            yield connection.cursor()
            connection.commit()

    def read(self, token: Token) -> int:
        with self._transaction(token) as cursor:
            return int(cursor.execute("SELECT remaining FROM stock").fetchone()[0])

    def write(self, left: int, token: Token) -> None:
        with self._transaction(token) as cursor:
            cursor.execute("UPDATE stock SET remaining = ?", (left,))


class FencedInDatabase(InDatabase):
    @contextlib.contextmanager
    def _transaction(self, token: Token) -> Iterator[sqlite3.Cursor]:
        with self._connection() as connection, fenced(connection, "stock", token) as cursor:
            yield cursor


FENCED = [FencedInMemory, FencedInFile, FencedInDatabase]
UNFENCED = [InMemory, InFile, InDatabase]
Make = Callable[[Path], Stock]


def _sell(stock: Stock, saw: int, token: Token) -> int:
    """Sell one of those that were seen; give how many the holder believes to have sold."""
    with contextlib.suppress(StaleToken):
        stock.write(saw - 1, token)
        return 1
    return 0


def _anna_sells_after_bert(stock: Stock) -> int:
    anna_saw = stock.read(ANNA)
    # Anna is paused here. Her lease ends, and Bert gets the lock.
    sold = _sell(stock, stock.read(BERT), BERT)
    return sold + _sell(stock, anna_saw, ANNA)


def _anna_sells_before_bert(stock: Stock) -> int:
    """The same, but Anna goes on between what Bert reads and what he writes."""
    anna_saw = stock.read(ANNA)
    bert_saw = stock.read(BERT)
    sold = _sell(stock, anna_saw, ANNA)
    return sold + _sell(stock, bert_saw, BERT)


STORIES = [_anna_sells_after_bert, _anna_sells_before_bert]
Story = Callable[[Stock], int]


@pytest.mark.parametrize("story", STORIES)
@pytest.mark.parametrize("make", FENCED)
def test_with_a_fence_what_is_left_is_what_was_not_sold(
    make: Make, story: Story, tmp_path: Path
) -> None:
    stock = make(tmp_path)
    sold = story(stock)
    assert sold == 1
    assert stock.read(BERT) == 10 - sold


@pytest.mark.parametrize("story", STORIES)
@pytest.mark.parametrize("make", UNFENCED)
def test_without_a_fence_one_is_sold_twice(make: Make, story: Story, tmp_path: Path) -> None:
    stock = make(tmp_path)
    sold = story(stock)
    assert sold == 2
    assert stock.read(BERT) == 9  # and 8 would be right


def test_a_token_that_is_shown_only_with_writes_is_shown_too_late(tmp_path: Path) -> None:
    """Why `admit` is there: the fence must be up before what a write is based on is read."""

    class LateFence(FencedInFile):
        read = InFile.read

    stock = LateFence(tmp_path)
    assert _anna_sells_before_bert(stock) == 2
    assert stock.read(BERT) == 9
