"""Fenced transactions, on SQLite; other drivers are played by one that takes their paramstyle."""

import contextlib
import re
import sqlite3
import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from leasehold.errors import StaleToken, StorageError
from leasehold.fencing import fenced, make_fence_table
from leasehold.fencing.fenced_sql import ATTEMPTS, MAX_RESOURCE_CHARS
from leasehold.fencing.token import MAX_PART, Token

DEADLINE_S = 30.0


@contextlib.contextmanager
def _shop(path: Path | str) -> Iterator[sqlite3.Connection]:
    """A connection to a database that has a table to be fenced."""
    with contextlib.closing(sqlite3.connect(path, timeout=DEADLINE_S)) as connection:
        connection.execute("CREATE TABLE IF NOT EXISTS stock (item TEXT, written_by TEXT)")
        make_fence_table(connection)
        yield connection


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "shop.db"


@pytest.fixture
def shop(path: Path) -> Iterator[sqlite3.Connection]:
    with _shop(path) as connection:
        yield connection


def _write(connection: Any, token: Token | int, **options: Any) -> None:
    with fenced(connection, "stock", token, **options) as cursor:
        cursor.execute(f"INSERT INTO stock VALUES ('apple', '{token}')")  # noqa: S608  ours


def _written(connection: sqlite3.Connection) -> list[str]:
    rows = connection.execute("SELECT written_by FROM stock ORDER BY rowid").fetchall()
    return [written_by for (written_by,) in rows]


def _row(connection: sqlite3.Connection, table: str = "leasehold_fences") -> object:
    statement = f"SELECT resource, revision, guards FROM {table}"  # noqa: S608  ours
    return connection.execute(statement).fetchall()


def test_equal_and_higher_tokens_pass_and_the_highest_is_kept(shop: sqlite3.Connection) -> None:
    for token in (Token(4, 1), Token(4, 1), Token(4, 2), Token(5, 1), 6):
        _write(shop, token)
    assert _written(shop) == ["4-1", "4-1", "4-2", "5-1", "6"]
    assert _row(shop) == [("stock", 6, 0)]
    assert not shop.in_transaction


@pytest.mark.parametrize("old", [Token(57, 9), Token(58, 1), 58])
def test_a_lower_token_is_refused_before_its_block_is_run(
    shop: sqlite3.Connection, old: Token | int
) -> None:
    _write(shop, Token(58, 2))
    ran = False
    with pytest.raises(StaleToken) as refused, fenced(shop, "stock", old):
        ran = True
    assert not ran
    assert (refused.value.seen, refused.value.resource) == (Token(58, 2), "stock")
    assert _written(shop) == ["58-2"]
    assert _row(shop) == [("stock", 58, 2)]
    assert not shop.in_transaction


def test_the_highest_token_of_all_can_be_kept(shop: sqlite3.Connection) -> None:
    _write(shop, Token(MAX_PART, MAX_PART))
    _write(shop, Token(MAX_PART, MAX_PART))
    with pytest.raises(StaleToken):
        _write(shop, Token(MAX_PART, MAX_PART - 1))


def test_resources_have_fences_of_their_own(shop: sqlite3.Connection) -> None:
    with fenced(shop, "stock", 58):
        pass
    with fenced(shop, "prices", 41):
        pass
    with pytest.raises(StaleToken), fenced(shop, "stock", 41):
        pass


def test_what_the_block_raises_takes_all_of_it_back_the_token_too(shop: sqlite3.Connection) -> None:
    _write(shop, 4)
    with pytest.raises(sqlite3.OperationalError), fenced(shop, "stock", 5) as cursor:
        cursor.execute("DELETE FROM stock").execute("this is no SQL")
    assert _written(shop) == ["4"]
    assert _row(shop) == [("stock", 4, 0)]
    assert not shop.in_transaction


def test_nothing_is_seen_of_a_block_before_it_is_done(shop: sqlite3.Connection, path: Path) -> None:
    with _shop(path) as other:
        with fenced(shop, "stock", 5) as cursor:
            cursor.execute("INSERT INTO stock VALUES ('apple', '5')")
            assert _written(other) == []
        assert _written(other) == ["5"]


def test_a_holder_waits_while_another_is_in_its_block(path: Path) -> None:
    """The compare and the write are one: nobody comes in between them."""
    outcome: list[object] = []

    def former_holder() -> None:
        with _shop(path) as connection:
            started.set()
            try:
                _write(connection, 41)
            except StaleToken as error:
                outcome.append(error.seen)

    started = threading.Event()
    other = threading.Thread(target=former_holder)
    with _shop(path) as connection:
        _write(connection, 41)
        with fenced(connection, "stock", 58) as cursor:
            other.start()
            assert started.wait(DEADLINE_S)
            other.join(0.05)  # without a lock it would be through in a moment
            assert other.is_alive()
            cursor.execute("INSERT INTO stock VALUES ('apple', '58')")
        other.join(DEADLINE_S)
        assert outcome == [Token(58, 0)]
        assert _written(connection) == ["41", "58"]


def test_of_many_threads_no_write_comes_after_one_with_a_higher_token(path: Path) -> None:
    def holder(number: int) -> None:
        with _shop(path) as connection:
            for revision in range(12):
                with contextlib.suppress(StaleToken):
                    _write(connection, Token(revision, number))

    with _shop(path) as connection:
        threads = [threading.Thread(target=holder, args=(number,)) for number in range(1, 5)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join(DEADLINE_S)
            assert not thread.is_alive()
        written = [Token.parse(text) for text in _written(connection)]
    assert written == sorted(written)
    assert written[-1] == Token(11, 4)


few = st.integers(min_value=0, max_value=4)


@given(st.lists(st.builds(Token, few, few), max_size=8))
def test_of_any_order_of_tokens_those_that_are_written_never_go_down(tokens: list[Token]) -> None:
    with _shop(":memory:") as connection:
        for token in tokens:
            with contextlib.suppress(StaleToken):
                _write(connection, token)
        written = [Token.parse(text) for text in _written(connection)]
    assert written == sorted(written)
    assert not tokens or written[-1] == max(tokens)


# Who has made the row first.


class Meddling(sqlite3.Connection):
    """Lets others in between two statements; as in PostgreSQL, an error ends the transaction."""

    meddle: Any = None
    is_aborted = False

    def rollback(self) -> None:
        self.is_aborted = False
        super().rollback()

    def cursor(self, factory: Any = None) -> Any:
        return super().cursor(factory or MeddlingCursor)


class MeddlingCursor(sqlite3.Cursor):
    def execute(self, statement: str, *args: Any) -> Any:
        connection = self.connection
        assert isinstance(connection, Meddling)
        if connection.is_aborted:
            raise sqlite3.InternalError("the transaction is aborted")
        try:
            if connection.meddle is not None:
                connection.meddle(statement)
            return super().execute(statement, *args)
        except sqlite3.Error:
            connection.is_aborted = True
            raise


@pytest.fixture
def meddled(shop: sqlite3.Connection, path: Path) -> Iterator[Meddling]:
    """A connection into which others come between statements, as where only rows are locked."""
    del shop  # it has made the tables
    with contextlib.closing(sqlite3.connect(path, factory=Meddling)) as connection:
        yield connection


@pytest.mark.parametrize("before", ["SELECT", "INSERT"])
@pytest.mark.parametrize(("theirs", "passes"), [(41, True), (50, True), (58, False)])
def test_two_that_make_the_row_at_once_come_one_after_the_other(
    meddled: Meddling, path: Path, before: str, theirs: int, *, passes: bool
) -> None:
    def make_the_row(statement: str) -> None:
        if statement.startswith(before):
            meddled.meddle = None
            meddled.rollback()  # SQLite would let nobody in: what was asked has found nothing
            with _shop(path) as other:
                _write(other, theirs)

    meddled.meddle = make_the_row
    if passes:
        _write(meddled, 50)
        assert _row(meddled) == [("stock", 50, 0)]
        assert _written(meddled) == [str(theirs), "50"]
    else:
        with pytest.raises(StaleToken):
            _write(meddled, 50)
        assert _written(meddled) == [str(theirs)]


def test_a_row_that_cannot_be_made_is_an_error_of_the_database(meddled: Meddling) -> None:
    tries = 0

    def refuse(statement: str) -> None:
        nonlocal tries
        if statement.startswith("INSERT INTO leasehold_fences"):
            tries += 1
            raise sqlite3.OperationalError("no right to insert")

    meddled.meddle = refuse
    with pytest.raises(sqlite3.OperationalError, match="no right to insert"):
        _write(meddled, 5)
    assert tries == ATTEMPTS


def test_a_row_that_does_not_move_is_told_after_some_attempts(shop: sqlite3.Connection) -> None:
    _write(shop, 4)
    shop.execute(
        "CREATE TRIGGER still BEFORE UPDATE ON leasehold_fences BEGIN SELECT RAISE(IGNORE); END"
    )
    with pytest.raises(StorageError, match="could not be updated to token 5-0 in 3 attempts"):
        _write(shop, 5)
    assert _written(shop) == ["4"]


def test_a_table_that_is_missing_is_told_with_what_makes_it(path: Path) -> None:
    with contextlib.closing(sqlite3.connect(path)) as connection:
        with pytest.raises(StorageError, match="table leasehold_fences does not exist") as refused:
            _write(connection, 4)
        assert "call `make_fence_table` once with" in str(refused.value)
        assert isinstance(refused.value.__cause__, sqlite3.OperationalError)


@pytest.mark.parametrize(
    ("text", "state", "is_missing"),
    [
        ("(1146, \"Table 'shop.leasehold_fences' doesn't exist\")", None, True),
        ('relation "leasehold_fences" does not exist', "42P01", True),
        ('column "guards" of relation "leasehold_fences" does not exist', "42703", False),
        ("permission denied for table leasehold_fences", "42501", False),
        ("database is locked", None, False),
    ],
)
def test_only_a_missing_table_is_told_as_such(
    text: str, state: str | None, is_missing: bool
) -> None:
    class DriverError(Exception):
        sqlstate = state

    class Cursor:
        def execute(self, *_: object) -> None:
            raise DriverError(text)

        def close(self) -> None: ...

    class Connection:
        def cursor(self) -> Cursor:
            return Cursor()

        def rollback(self) -> None: ...

    with pytest.raises(StorageError if is_missing else DriverError) as refused:
        _write(Connection(), 4, paramstyle="qmark")
    told = refused.value.__cause__ if is_missing else refused.value
    assert isinstance(told, DriverError)
    if not is_missing:
        assert told.__notes__ == ["Is there a table leasehold_fences? `make_fence_table` makes it."]


# Connections with which nothing can be fenced.


def test_a_connection_that_commits_by_itself_is_refused(path: Path) -> None:
    with _shop(path) as shop:
        shop.isolation_level = None
        with pytest.raises(ValueError, match="commits each statement automatically"):
            _write(shop, 5)
        assert _row(shop) == []


@pytest.mark.parametrize("told_by", ["autocommit", "get_autocommit"])
def test_also_other_drivers_are_asked_whether_they_commit_by_themselves(
    shop: sqlite3.Connection, told_by: str
) -> None:
    def of_driver(*, commits: bool) -> "Driver":
        driver = Driver(shop, "qmark")
        setattr(driver, told_by, commits if told_by == "autocommit" else lambda: commits)
        return driver

    with pytest.raises(ValueError, match="commits each statement automatically"):
        _write(of_driver(commits=True), 5, paramstyle="qmark")
    _write(of_driver(commits=False), 5, paramstyle="qmark")


def test_a_connection_that_is_in_a_transaction_is_refused_and_it_goes_on(
    shop: sqlite3.Connection,
) -> None:
    shop.execute("INSERT INTO stock VALUES ('pear', 'somebody')")
    with pytest.raises(ValueError, match="already in a transaction"):
        _write(shop, 5)
    assert shop.in_transaction
    shop.commit()
    assert _written(shop) == ["somebody"]


@pytest.mark.parametrize("ending", ["commit", "rollback", "executescript"])
def test_a_block_that_ends_the_transaction_is_told_so(
    shop: sqlite3.Connection, ending: str
) -> None:
    ends: dict[str, Callable[[], object]] = {
        "commit": shop.commit,
        "rollback": shop.rollback,
        "executescript": lambda: shop.executescript("INSERT INTO stock VALUES ('pear', '5')"),
    }
    with (
        pytest.raises(RuntimeError, match="the transaction on 'stock' ended inside its block"),
        fenced(shop, "stock", 5),
    ):
        ends[ending]()


def test_a_driver_that_does_not_count_rows_is_refused(shop: sqlite3.Connection) -> None:
    driver = Driver(shop, "qmark", rowcount=-1)
    with pytest.raises(StorageError, match=r"must be 0 or 1 .*, got -1:"):
        _write(driver, 5, paramstyle="qmark")
    assert _written(shop) == []


# What goes into SQL, and how.


@pytest.mark.parametrize("resource", ["'; DROP TABLE stock; --", '"', "%s %(p1)s ? :1 {}", "größe"])
def test_a_resource_may_have_any_name(shop: sqlite3.Connection, resource: str) -> None:
    with fenced(shop, resource, 5):
        pass
    with pytest.raises(StaleToken), fenced(shop, resource, 4):
        pass
    assert _row(shop) == [(resource, 5, 0)]
    assert _written(shop) == []


@pytest.mark.parametrize("resource", ["", "x" * (MAX_RESOURCE_CHARS + 1)])
def test_a_resource_has_a_name_of_a_length_that_fits(
    shop: sqlite3.Connection, resource: str
) -> None:
    with pytest.raises(ValueError, match="resource must have 1 to 255 characters"):
        fenced(shop, resource, 5).__enter__()


@pytest.mark.parametrize(
    "table", ["", "a b", "a;b", "a--", '"a"', "1a", "a.b.c", "a.", ".a", "größe", "x" * 64, "a\n"]
)
def test_a_table_has_a_plain_name(shop: sqlite3.Connection, table: str) -> None:
    with pytest.raises(ValueError, match="table must be a plain name"):
        _write(shop, 5, table=table)
    with pytest.raises(ValueError, match="table must be a plain name"):
        make_fence_table(shop, table=table)


def test_what_is_no_text_is_a_type_error(shop: sqlite3.Connection) -> None:
    with pytest.raises(TypeError, match="table must be a str"):
        make_fence_table(shop, table=None)  # type: ignore[arg-type]
    with pytest.raises(TypeError, match="resource must be a str"):
        fenced(shop, None, 5).__enter__()  # type: ignore[arg-type]
    with pytest.raises(TypeError, match="token must be a Token or an int"):
        fenced(shop, "stock", None).__enter__()  # type: ignore[arg-type]


@pytest.mark.parametrize("table", ["fences_of_ours", "main.fences"])
def test_the_table_may_have_another_name(shop: sqlite3.Connection, table: str) -> None:
    make_fence_table(shop, table=table)
    make_fence_table(shop, table=table)
    _write(shop, 5, table=table)
    assert _row(shop, table) == [("stock", 5, 0)]
    assert _row(shop) == []


class Driver:
    """A connection of another driver, which takes its own marks only; SQLite does the work."""

    def __init__(self, real: sqlite3.Connection, style: str, rowcount: int | None = None) -> None:
        self.commit, self.rollback = real.commit, real.rollback
        self.real, self.style, self.rowcount = real, style, rowcount

    def cursor(self) -> "DriverCursor":
        return DriverCursor(self)


class DriverCursor:
    def __init__(self, driver: Driver) -> None:
        self._driver = driver
        self._real = driver.real.cursor()
        self.fetchone, self.close = self._real.fetchone, self._real.close

    @property
    def rowcount(self) -> int:
        return self._real.rowcount if self._driver.rowcount is None else self._driver.rowcount

    def execute(self, statement: str, values: Sequence[Any] | Mapping[str, Any] = ()) -> None:
        takes_mapping = self._driver.style in {"named", "pyformat"}
        if values:
            assert isinstance(values, Mapping if takes_mapping else Sequence)
        mark, of_sqlite = {
            "qmark": (r"\?", "?"),
            "format": (r"%s", "?"),
            "numeric": (r":(\d+)", r"?\1"),
            "named": (r":(p\d+)", r":\1"),
            "pyformat": (r"%\((p\d+)\)s", r":\1"),
        }[self._driver.style]
        text, marks = re.subn(mark, of_sqlite, statement)
        assert marks == len(values)
        self._real.execute(text, values)


@pytest.mark.parametrize("style", ["qmark", "format", "numeric", "named", "pyformat"])
def test_each_paramstyle_of_the_db_api_can_be_given(shop: sqlite3.Connection, style: str) -> None:
    driver = Driver(shop, style)
    for token in (Token(41, 1), Token(58, 1), Token(58, 1)):
        _write(driver, token, paramstyle=style)
    with pytest.raises(StaleToken):
        _write(driver, Token(41, 1), paramstyle=style)
    assert _written(shop) == ["41-1", "58-1", "58-1"]


def test_the_paramstyle_is_found_for_a_subclass_of_the_drivers_connection(
    meddled: Meddling,
) -> None:
    _write(meddled, 5)
    assert _written(meddled) == ["5"]


@pytest.mark.parametrize("given_style", [None, "dollar"])
def test_a_paramstyle_that_is_not_known_is_asked_for(
    shop: sqlite3.Connection, given_style: str | None
) -> None:
    with pytest.raises(ValueError, match=r"Driver is .*give `paramstyle`.*one of qmark, format"):
        _write(Driver(shop, "qmark"), 5, paramstyle=given_style)
