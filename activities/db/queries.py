"""The statements of `sql/*.sql` as awaitable functions."""

import functools
from collections.abc import AsyncGenerator, Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from pathlib import Path
from typing import Any

from aiosql.adapters.asyncpg import AsyncPGAdapter
from aiosql.queries import Queries
from aiosql.query_loader import QueryLoader

SQL = Path(__file__).parent / "sql"
_SECONDS: ContextVar[float | None] = ContextVar("seconds that a statement may take", default=None)


@contextmanager
def allowed(seconds: float) -> Iterator[None]:
    """Within the block a statement may take so long; elsewhere, as long as the connection's settings say."""
    token = _SECONDS.set(seconds)
    try:
        yield
    finally:
        _SECONDS.reset(token)


class _ConnectionAdapter(AsyncPGAdapter):
    """Runs on the connection that it is given.

    The library's own looks through `dir()` of it at every call, to find out whether it is a pool.
    """

    async def select(self, conn: Any, query_name: str, sql: str, parameters: Any, record_class: Any = None) -> AsyncGenerator[Any, None]:
        for row in await conn.fetch(sql, *self._ordered(query_name, parameters), timeout=_SECONDS.get()):
            yield row

    async def select_one(self, conn: Any, query_name: str, sql: str, parameters: Any, record_class: Any = None) -> Any:
        return await conn.fetchrow(sql, *self._ordered(query_name, parameters), timeout=_SECONDS.get())

    async def select_value(self, conn: Any, query_name: str, sql: str, parameters: Any) -> Any:
        return await conn.fetchval(sql, *self._ordered(query_name, parameters), timeout=_SECONDS.get())

    async def insert_update_delete(self, conn: Any, query_name: str, sql: str, parameters: Any) -> Any:
        return await conn.execute(sql, *self._ordered(query_name, parameters), timeout=_SECONDS.get())

    async def insert_update_delete_many(self, conn: Any, query_name: str, sql: str, parameters: Any) -> Any:
        return await conn.executemany(sql, [self._ordered(query_name, row) for row in parameters])

    def _ordered(self, query_name: str, parameters: Any) -> list[Any]:
        return [parameters[name] for name in self.var_sorted[query_name]]


@functools.cache
def load_queries(folder: Path = SQL) -> Any:
    """Every statement under its name; names are unique across files.

    Each takes a connection and keyword arguments. `name(…)` is an async iterator over rows, `name(…)^` one row or None,
    `name(…)$` one value, `name(…)!` the command's tag; `name(…)*!` takes a list of dicts. Raises SQLLoadException for a
    name that is taken and SQLParseException for a file that can't be read.
    """
    adapter = _ConnectionAdapter()  # type: ignore[no-untyped-call]
    loader = QueryLoader(adapter, None, attribute="__")
    queries = Queries(adapter)
    for path in sorted(folder.glob("*.sql")):
        queries.load_from_list(loader.load_query_data_from_file(path, encoding="utf-8"))
    return queries


__all__ = ["SQL", "allowed", "load_queries"]
