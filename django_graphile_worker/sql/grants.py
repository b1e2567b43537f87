"""Scripts that grant a database role what it needs. The owner of the tables can run them any number of times."""

from __future__ import annotations

import re
from types import MappingProxyType

from django_graphile_worker.sql.statements import ddl, literal, quoted

# The files of ddl by the purpose of the role.
FILES = MappingProxyType(
    {
        "adder": ("grants_adder.sql",),
        "keyed-adder": ("grants_adder.sql", "grants_keys.sql"),
        "worker": ("grants_worker.sql",),
        "viewer": ("grants_viewer.sql",),
    }
)
# PostgreSQL cuts longer names, and the cut name could be the name of another policy.
LONGEST_NAME = 63
_EVERY_ROW = re.compile(r":EVERY_ROW\((?P<verb>\w+), (?P<command>\w+)\)\n")
_TOKEN = re.compile(r":(?P<quote>'?)(?:(?P<role>ROLE)|POLICY\((?P<policy>\w+)\))(?P=quote)")


def script(kind: str, role: str, *, schema: str) -> str:
    """Return the statements that grant a role the privileges of this kind of role."""

    def name(found: re.Match[str]) -> str:
        text = role if found["role"] else _policy(role, found["policy"])
        return literal(text) if found["quote"] else quoted(text)

    def every_row(found: re.Match[str]) -> str:
        text = ddl("grants_every_row.sql", schema)
        return text.replace(":VERB", found["verb"]).replace(":COMMAND", found["command"])

    text = _EVERY_ROW.sub(every_row, "\n".join(ddl(filename, schema) for filename in FILES[kind]))
    return _TOKEN.sub(name, text.replace("$$", _dollars(role)))


def _dollars(role: str) -> str:
    """Return a dollar quote that does not occur in the name of the role, so that the name cannot end it."""
    quote = "$$"
    while quote in role:
        quote = f"$grants{'_' * len(quote)}$"
    return quote


def _policy(role: str, what: str) -> str:
    """Return the name of a policy of this role alone."""
    room = LONGEST_NAME - len(what) - 1
    return f"{role.encode()[:room].decode(errors='ignore')}_{what}"
