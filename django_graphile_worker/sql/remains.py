"""Jobs that go back with less to do: what is done of an array payload is not done again."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

from django_graphile_worker.sql.arrays import int_array, text_array
from django_graphile_worker.sql.claims import Claim
from django_graphile_worker.sql.schema import statement

# The attempt is given back, as to every job whose run the worker itself cut short.
RETURN_REMAINS = """/* gw:return-remains */
select id from :SCHEMA._private_return_claims_v2(
    %(ids)s::bigint[], %(tokens)s::text[], %(payloads)s::text[]) as id"""


class Remains(NamedTuple):
    """A claim, and what is left of its payload."""

    claim: Claim
    payload_text: str


def return_remains(cursor: Any, remains: Sequence[Remains], *, schema: str) -> set[int]:
    """Give jobs back with what is left to do; return the ids of those that were still claimed."""
    parameters = {
        "ids": int_array(each.claim.id for each in remains),
        "tokens": text_array(each.claim.token for each in remains),
        "payloads": [each.payload_text for each in remains],
    }
    cursor.execute(statement(RETURN_REMAINS, schema), parameters)
    return {row[0] for row in cursor.fetchall()}
