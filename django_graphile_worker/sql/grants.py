"""What a role of the database needs, as a script that an owner of the tables can run, and run again."""

from __future__ import annotations

import re
from types import MappingProxyType

from django_graphile_worker.sql.schema import ddl, literal, quoted

# By what the role is for.
FILES = MappingProxyType(
    {
        "adder": ("grants_adder.sql",),
        "keyed-adder": ("grants_adder.sql", "grants_keys.sql"),
        "worker": ("grants_worker.sql",),
        "viewer": ("grants_viewer.sql",),
    }
)
# A longer name would be cut by PostgreSQL, and might then be another policy's.
LONGEST_NAME = 63
_EVERY_ROW = re.compile(r":EVERY_ROW\((?P<verb>\w+), (?P<command>\w+)\)\n")
_TOKEN = re.compile(r":(?P<quote>'?)(?:(?P<role>ROLE)|POLICY\((?P<policy>\w+)\))(?P=quote)")


def script(kind: str, role: str, *, schema: str) -> str:
    """The statements that let the role do what this kind of role does."""

    def name(found: re.Match[str]) -> str:
        text = role if found["role"] else _policy(role, found["policy"])
        return literal(text) if found["quote"] else quoted(text)

    def every_row(found: re.Match[str]) -> str:
        text = ddl("grants_every_row.sql", schema)
        return text.replace(":VERB", found["verb"]).replace(":COMMAND", found["command"])

    text = _EVERY_ROW.sub(every_row, "\n".join(ddl(filename, schema) for filename in FILES[kind]))
    return _TOKEN.sub(name, text.replace("$$", _dollars(role)))


def _dollars(role: str) -> str:
    """A quote that no name can end."""
    quote = "$$"
    while quote in role:
        quote = f"$grants{'_' * len(quote)}$"
    return quote


def _policy(role: str, what: str) -> str:
    """Named after the role, so that each role has its own."""
    room = LONGEST_NAME - len(what) - 1
    return f"{role.encode()[:room].decode(errors='ignore')}_{what}"
