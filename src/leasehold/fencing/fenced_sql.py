"""A transaction of a database that an old token cannot commit.

Theory of operation. A table has one row for each fenced resource, with the highest token. The first
statement of the transaction moves that row to the token, on the condition that it is not higher:

    UPDATE leasehold_fences SET revision = …, guards = …, writes = writes + 1
    WHERE resource = … AND (revision < … OR revision = … AND guards <= …)

One row changed: the token is valid, and the database has locked the row (SQLite: all of it) until
the transaction ends. So holders of one resource run one after the other, and the comparison and the
whole block are one step. `writes` exists because MySQL counts a row as changed only if something in
it is different, which it would not be for an equal token.

No row changed: the row is higher, and the token is refused; or it does not exist yet, and is
inserted. Two transactions may try that at the same time. The second one gets an error of the
database, rolls back, and starts over; its block has not begun then.
"""

import contextlib
import re
import sys
from collections.abc import Callable, Iterator
from typing import Any, Final

from leasehold.errors import StaleToken, StorageError
from leasehold.fencing.token import Token, check_token

TABLE: Final = "leasehold_fences"
"""The default name of the table."""

MAX_RESOURCE_CHARS: Final = 255
"""The longest name of a resource: every database limits the columns of a primary key."""

ATTEMPTS: Final = 3
"""How often the fence is tried if other transactions insert or move its row at the same time."""

_TABLE_NAME: Final = re.compile(r"(?:[A-Za-z_][A-Za-z0-9_]{0,62}\.)?[A-Za-z_][A-Za-z0-9_]{0,62}")

_MARKS: Final[dict[str, Callable[[int], str]]] = {
    "qmark": lambda _: "?",
    "format": lambda _: "%s",
    "numeric": lambda number: f":{number}",
    "named": lambda number: f":p{number}",
    "pyformat": lambda number: f"%(p{number})s",
}
"""The SQL form of a parameter, by the paramstyle of the DB-API (PEP 249)."""


_NO_TABLE_STATES: Final = ("42P01", "42S02")
"""SQLSTATE if there is no such table: of PostgreSQL, and of MySQL and others."""

_NO_TABLE: Final = re.compile(r"no such table|\bTable '.*' doesn't exist")
"""Error messages of drivers without SQLSTATE: SQLite, and some drivers of MySQL."""


def make_fence_table(connection: Any, *, table: str = TABLE) -> None:
    """Create the table of `fenced`, if it does not exist, and commit."""
    statement = (
        f"CREATE TABLE IF NOT EXISTS {_check_table(table)} ("
        f"resource VARCHAR({MAX_RESOURCE_CHARS}) NOT NULL PRIMARY KEY, "
        "revision BIGINT NOT NULL, guards BIGINT NOT NULL, writes BIGINT NOT NULL)"
    )
    with contextlib.closing(connection.cursor()) as cursor:
        cursor.execute(statement)
    connection.commit()


@contextlib.contextmanager
def fenced(
    connection: Any,
    resource: str,
    token: Token | int,
    *,
    table: str = TABLE,
    paramstyle: str | None = None,
) -> Iterator[Any]:
    """Run the block as one transaction, which is committed only if no higher token was seen.

    `with fenced(connection, "inventory", guard.token) as cursor:` for a connection of the DB-API.
    `StaleToken` is raised before the block is run. An exception in the block rolls back all of it.
    The connection must have no open transaction and no autocommit, and the block must not commit.
    The table is created by `make_fence_table`; raises `StorageError` if it is missing. `paramstyle`
    is needed if the connection's class is not in the driver's package.
    """
    shown = check_token(token)
    _check_resource(resource)
    _refuse_autocommit(connection)
    row = _Row(connection, _check_table(table), resource, _style_of(connection, paramstyle))
    with contextlib.closing(connection.cursor()) as cursor:
        try:
            _admit(row, cursor, shown)
            yield cursor
            _check_still_open(connection, resource)
            connection.commit()
        except BaseException:
            connection.rollback()
            raise


def _admit(row: "_Row", cursor: Any, shown: Token) -> None:
    for attempt in range(1, ATTEMPTS + 1):
        if row.move(cursor, shown):
            return
        seen = row.read(cursor)
        if seen is None:
            try:
                row.insert(cursor, shown)
            except Exception:  # of the driver: the row exists by now, or it is not allowed
                if attempt == ATTEMPTS:
                    raise
            else:
                return
        elif shown < seen:
            raise StaleToken(shown, seen, row.resource)
        row.connection.rollback()
    raise StorageError(
        f"the row of {row.resource!r} in {row.table} could not be updated to token {shown} in "
        f"{ATTEMPTS} attempts, although its token is not higher: check that this user may update "
        "the table"
    )


class _Row:
    """The row of one resource, for one transaction."""

    def __init__(self, connection: Any, table: str, resource: str, style: str) -> None:
        self.connection = connection
        self.table = table
        self.resource = resource
        self._style = style

    def move(self, cursor: Any, token: Token) -> bool:
        """Move the row to a token, unless it is higher or absent; return whether it was moved."""
        try:
            self._execute(
                cursor,
                "UPDATE {table} SET revision = {}, guards = {}, writes = writes + 1 WHERE resource "
                "= {} AND (revision < {} OR (revision = {} AND guards <= {}))",
                *(token.revision, token.count, self.resource),
                *(token.revision, token.revision, token.count),
            )
        except Exception as error:
            if _is_of_no_table(error):
                raise StorageError(
                    f"table {self.table} does not exist: call `make_fence_table` once with this "
                    f"connection and this table name ({error})"
                ) from error
            error.add_note(f"Is there a table {self.table}? `make_fence_table` makes it.")
            raise
        if cursor.rowcount not in (0, 1):
            raise StorageError(
                "rowcount of the driver must be 0 or 1 after an update of one row of "
                f"{self.table}, got {cursor.rowcount}: fencing does not work with this driver"
            )
        return bool(cursor.rowcount)

    def read(self, cursor: Any) -> Token | None:
        """Return the token in the row, or None if there is no row."""
        statement = "SELECT revision, guards FROM {table} WHERE resource = {}"
        self._execute(cursor, statement, self.resource)
        found = cursor.fetchone()
        return None if found is None else Token(int(found[0]), int(found[1]))

    def insert(self, cursor: Any, token: Token) -> None:
        """Insert the row."""
        self._execute(
            cursor,
            "INSERT INTO {table} (resource, revision, guards, writes) VALUES ({}, {}, {}, 1)",
            *(self.resource, token.revision, token.count),
        )

    def _execute(self, cursor: Any, statement: str, *values: str | int) -> None:
        """Execute one of the statements above; each `{}` is passed as a parameter."""
        numbers = range(1, len(values) + 1)
        text = statement.format(*map(_MARKS[self._style], numbers), table=self.table)
        if self._style in ("named", "pyformat"):
            cursor.execute(text, {f"p{number}": values[number - 1] for number in numbers})
        else:
            cursor.execute(text, values)


def _is_of_no_table(error: Exception) -> bool:
    """Return whether a driver reports a missing table, as far as that can be detected."""
    for name in ("sqlstate", "pgcode"):
        state = getattr(error, name, None)
        if isinstance(state, str):
            return state in _NO_TABLE_STATES
    return _NO_TABLE.search(str(error)) is not None


def _check_table(table: str) -> str:
    """Refuse all but plain names: it is the only text that goes into SQL unescaped."""
    if not isinstance(table, str):
        raise TypeError(f"table must be a str, not {table!r}")
    if _TABLE_NAME.fullmatch(table) is None:
        raise ValueError(
            f"table must be a plain name, or two with a dot between them, of letters, digits and "
            f"underscores, such as {TABLE!r}; not {table!r}"
        )
    return table


def _check_resource(resource: str) -> None:
    if not isinstance(resource, str):
        raise TypeError(f"resource must be a str, not {resource!r}")
    if not 0 < len(resource) <= MAX_RESOURCE_CHARS:
        raise ValueError(
            f"resource must have 1 to {MAX_RESOURCE_CHARS} characters, got {len(resource)}"
        )


def _style_of(connection: Any, given: str | None) -> str:
    """Return the paramstyle; a driver has it in its package, which also has its connections."""
    style = given
    for kind in type(connection).__mro__:
        if style is None:
            package = sys.modules.get(kind.__module__.partition(".")[0])
            style = getattr(package, "paramstyle", None)
    if style not in _MARKS:
        known = ", ".join(_MARKS)
        raise ValueError(
            f"the paramstyle of {type(connection).__module__}.{type(connection).__qualname__} is "
            f"{style!r}: give `paramstyle`, as the driver's package has it; one of {known}"
        )
    return style


def _refuse_autocommit(connection: Any) -> None:
    """Refuse a connection that is known to be in autocommit mode or in a transaction."""
    if _commits_by_itself(connection):
        raise ValueError(
            f"{connection!r} commits each statement automatically, so writes cannot be fenced: "
            "switch autocommit off (sqlite3: keep the default isolation_level)"
        )
    # With `autocommit=False`, a sqlite3 of Python 3.12 is always in a transaction.
    if getattr(connection, "autocommit", None) is not False and (
        getattr(connection, "in_transaction", False) is True
    ):
        raise ValueError(
            f"{connection!r} is already in a transaction: commit it or roll it back first"
        )


def _commits_by_itself(connection: Any) -> bool:
    """Return whether it is in autocommit mode, if known: the DB-API has no single way to ask."""
    autocommit = getattr(connection, "autocommit", None)
    if isinstance(autocommit, bool):
        return autocommit
    ask = getattr(connection, "get_autocommit", None)  # MySQL's drivers
    if callable(ask):
        return bool(ask())
    of_sqlite3 = any(kind.__module__ == "sqlite3" for kind in type(connection).__mro__)
    return of_sqlite3 and connection.isolation_level is None


def _check_still_open(connection: Any, resource: str) -> None:
    """Raise if the block has committed, where the connection can report that."""
    if getattr(connection, "in_transaction", True) is False:
        raise RuntimeError(
            f"the transaction on {resource!r} ended inside its block, so later statements were "
            "not fenced: leave commit and rollback to `fenced`, and do not use `executescript`, "
            "which commits"
        )
