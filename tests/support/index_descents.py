"""How often a statement descends the indexes of a table, and how much more it reads where they have become deeper.

A descent reads one page of each level. The indexes of a long table have more levels than those of a short one, so the
same work reads some pages more there. How many is known, and differs from what a scan reads that does not stop.
"""

from __future__ import annotations

import struct
from collections.abc import Callable
from typing import Any

import psycopg

# How the first page of a B-tree begins: a header, a mark, the version, the root and its level, the page where descents
# begin and its level. Leaves have level 0.
FIRST_PAGE = struct.Struct("=24x6I")
MARK = 0x053162


class IndexDescents:
    """How often a statement descends each index, and how deep the index is then.

    ``run`` executes the statement, which must have been run before: planning reads indexes, too. It is rolled back.
    """

    def __init__(self, connection: psycopg.Connection[Any], table: str, run: Callable[[], object]) -> None:
        self._connection = connection
        self._table = table
        self._levels = self._read_levels()
        with connection.transaction(force_rollback=True):
            pages_before, scans_before = self._pages_read(), self._scans()
            run()
            pages, scans = self._pages_read(), self._scans()
        # Nobody counts the descents that write an entry. But these read nothing else, and a claim writes none to the
        # indexes that it scans.
        self._counts = {
            index: (scans[index] - scans_before[index]) or (pages[index] - pages_before[index]) // (level + 1)
            for index, level in self._levels.items()
        }

    def pages_of_new_levels(self) -> int:
        """Return how many pages so many descents read more now than they did then."""
        levels = self._read_levels()
        return sum(count * (levels[index] - self._levels[index]) for index, count in self._counts.items())

    def _read_levels(self) -> dict[int, int]:
        # The pages are read from the files.
        self._connection.execute("checkpoint")
        levels = {}
        for index, page in self._of_each_index(
            f"pg_read_binary_file(pg_relation_filepath(indexrelid), 0, {FIRST_PAGE.size})"
        ).items():
            mark, *_, level = FIRST_PAGE.unpack(page)
            assert mark == MARK
            levels[index] = level
        return levels

    def _pages_read(self) -> dict[int, int]:
        return self._of_each_index("pg_stat_get_xact_blocks_fetched(indexrelid)")

    def _scans(self) -> dict[int, int]:
        return self._of_each_index("pg_stat_get_xact_numscans(indexrelid)")

    def _of_each_index(self, value: str) -> dict[int, Any]:
        text = f"select indexrelid::bigint, {value} from pg_index where indrelid = '{self._table}'::regclass"
        return dict(self._connection.execute(text.encode()).fetchall())
