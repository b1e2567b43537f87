"""Every statement of the package, parsed under a search_path on which somebody has planted look-alikes."""

from __future__ import annotations

import importlib
import pkgutil
import re
from collections.abc import Iterable, Iterator
from datetime import timedelta
from pathlib import Path
from typing import Any

import psycopg
import pytest
from django.db import connection
from django.test import Client

from django_graphile_worker import JobKeyMode, JobSpec, add_job, add_jobs, sql
from django_graphile_worker.admin.visible_jobs import NO_IDS
from django_graphile_worker.sql import session
from django_graphile_worker.sql.control import Pause, PauseKind
from django_graphile_worker.sql.inspection import error_groups, overview
from django_graphile_worker.sql.statements import statement
from django_graphile_worker.testing import clear_queue
from tests.support import admin_pages as pages
from tests.support.factories import make_failed_job, make_job, minutes_ago
from tests.support.operating import make_worker, operate
from tests.support.planted_catalog import BEFORE_CATALOG, SEARCH_PATH, Parser, plant

SCHEMA = "graphile_worker"
_TAG = re.compile(r"/\* gw:([^ ]+) \*/")
_PLACEHOLDER = re.compile(r"(?<!\{)\{[a-z_]+\}")
_PARAMETER = re.compile(r"%(?:\((\w+)\))?s")
# The types that the driver gives to a parameter that has no cast, depending on its value.
TYPES_OF_DRIVER = ("unknown", "int2", "int4", "int8", "numeric", "float8", "text", "bool", "timestamptz", "int8[]")
# They have no expression but parameters. DO locks a table.
WITHOUT_EXPRESSIONS = ("alter", "begin", "call", "copy", "create", "discard", "do", "drop", "lock", "set", "vacuum")
# The tables of another package, of which all columns are read.
OF_CELERY_BEAT = "celery-beat-"


@pytest.fixture(scope="module")
def planted_connection(shared_database: str) -> Iterator[psycopg.Connection[Any]]:
    with psycopg.connect(shared_database, autocommit=True) as connection:
        plant(connection)
        yield connection


@pytest.fixture(scope="module")
def parser(planted_connection: psycopg.Connection[Any]) -> Parser:
    return Parser(planted_connection)


def constants() -> Iterator[str]:
    """Yield the statements that are constants, in the form in which they are sent."""
    for module in pkgutil.walk_packages(sql.__path__, f"{sql.__name__}."):
        for value in vars(importlib.import_module(module.name)).values():
            texts = value.values() if isinstance(value, dict) else (value,)
            for text in texts:
                if isinstance(text, str) and _TAG.match(text.strip()) and not _PLACEHOLDER.search(text):
                    yield statement(text, SCHEMA)


def has_expressions(text: str) -> bool:
    return _TAG.sub("", text).split(maxsplit=1)[0] not in WITHOUT_EXPRESSIONS


def tags(texts: Iterable[str]) -> set[str]:
    return {tag for text in texts for tag in _TAG.findall(text)}


def numbered(text: str) -> tuple[str, int, set[int]]:
    """Return the statement with numbered parameters, their number, and which of them have no cast."""
    names: list[object] = []
    uncast: set[int] = set()

    def number(found: re.Match[str]) -> str:
        name = found[1] or object()
        if name not in names:
            names.append(name)
        if not found.string.startswith("::", found.end()):
            uncast.add(names.index(name))
        return f"${names.index(name) + 1}"

    return _PARAMETER.sub(number, text).replace("%%", "%"), len(names), uncast


def planted_in(parser: Parser, text: str, path: str = SEARCH_PATH) -> Iterator[str]:
    """Yield what is wrong with a statement, for each way in which the driver may send its parameters."""
    text, number, uncast = numbered(text)
    for kind in TYPES_OF_DRIVER if uncast else TYPES_OF_DRIVER[:1]:
        types = [kind if place in uncast else "unknown" for place in range(number)]
        try:
            parser.parse(text, types)
        except psycopg.Error as error:
            # A parameter of this type does not fit.
            if kind == "unknown":
                yield f"{text}: {error}"
            continue
        try:
            if found := parser.parse(text, types, path=path):
                yield f"{text} with {kind}: {found}"
        except psycopg.Error as error:
            yield f"{text} with {kind}: {error}"


def test_the_parser_finds_look_alikes(parser: Parser) -> None:
    for expression in (
        "400 * interval '1 day'",
        "now()",
        "'a'::text",
        "'{}'::jsonb - 'a'",
        "count(*)",
        "-'a'::varchar",
    ):
        assert list(planted_in(parser, f"select {expression}")), expression
    assert list(planted_in(parser, "select 1 = 1", BEFORE_CATALOG))
    assert not list(planted_in(parser, "select pg_catalog.now() + interval '400 days', 1 = %s::int"))


def test_constants(parser: Parser) -> None:
    texts = [text for text in constants() if has_expressions(text) and OF_CELERY_BEAT not in text]
    texts = [without_explain(text) for text in texts]
    assert len(texts) > 200
    assert "\n\n".join(problem for text in texts for problem in planted_in(parser, text)) == ""


def test_statements_that_pin_the_path(parser: Parser) -> None:
    """They are sent before the path is pinned, so it may have a schema of others even before pg_catalog."""
    for text in (session.SET_UP_SESSION, session.LIMIT_TRANSACTION.format(milliseconds=1)):
        assert list(planted_in(parser, text, BEFORE_CATALOG)) == []


@pytest.fixture
def sent(db: None) -> Iterator[dict[str, Any]]:
    """The statements with a tag that Django's connection sends, with their parameters."""
    found: dict[str, Any] = {}

    def note(execute: Any, text: str, parameters: Any, many: bool, context: Any) -> Any:
        if _TAG.match(str(text).strip()):
            found[text] = parameters
        return execute(text, parameters, many, context)

    with connection.execute_wrapper(note):
        yield found


def test_statements_that_are_built(
    parser: Parser, sent: dict[str, Any], admin_client: Client, planted_connection: psycopg.Connection[Any]
) -> None:
    """Each tag in the source is that of a constant, or of a statement that is sent here."""
    use_everything(admin_client)

    writer = psycopg.ClientCursor(planted_connection)
    texts = [writer.mogrify(text, parameters) for text, parameters in sent.items() if has_expressions(text)]
    # The driver names the types of arrays and times without their schema.
    texts = [re.sub(r"'::(int2|int4|int8|float8|timestamptz|uuid)\b", r"'::pg_catalog.\1", text) for text in texts]
    texts = [without_explain(text) for text in texts]
    assert "\n\n".join(found for text in texts if (found := look_alikes(parser, text))) == ""
    sources = [path.read_text(encoding="utf-8") for path in Path(sql.__path__[0]).rglob("*.py")]
    unknown = tags(sources) - tags(sent) - tags(constants())
    assert {tag for tag in unknown if "{" not in tag and OF_CELERY_BEAT not in tag} == set()


def without_explain(text: str) -> str:
    return re.sub(r" explain \(.*?\)", "", text)


def look_alikes(parser: Parser, text: str) -> str:
    try:
        found = parser.parse(text, path=SEARCH_PATH)
    except psycopg.Error as error:
        return f"{text}: {error}"
    return f"{text}: {found}" if found else ""


VERBS = (
    ("status",),
    ("jobs", "--state", "all"),
    ("jobs", "--task", "a", "--state", "ready"),
    ("show", "{id}"),
    ("add", "a", "--key", "other"),
    ("reschedule", "{id}", "--run-at", "now", "--attempts", "0"),
    ("fail", "{id}"),
    ("delete", "{id}"),
    ("workers",),
    ("queues",),
    ("schedules",),
    ("unlock", "node"),
    ("sweep",),
    ("delete", "--key", "other"),
    ("cleanup", "--queues", "--tasks", "--permanently-failed-older-than", "1d"),
)


QUERIES = ("state=all", "q=task:a", "q=queue:queue", "q=flag:flag", "q=error:Value", "q=payload.n:1", "q=key:key")


def a_bit_of_everything() -> int:
    """A job in each state, queues, workers; the id of a job that waits."""
    make_worker("alive", tasks=["a"])
    make_job("a", locked_by="alive", attempts=1, queue_name="held")
    make_job("a", locked_by="node", attempts=1, locked_at=minutes_ago(60 * 5))
    make_job("a", run_at=minutes_ago(-5))
    make_job("a", run_at=minutes_ago(-5), attempts=3, last_error="ValueError: 1")
    make_failed_job("a", last_error="ValueError: 2")
    return make_job("a", key="key", queue_name="queue", payload={"n": 1}, flags={"flag": True}, run_at=minutes_ago(1))


def use_everything(client: Client) -> None:
    """Have all statements sent that depend on what is asked for."""
    job_id = a_bit_of_everything()
    add_job("a", {"n": 1}, queue_name="queue", run_at=timedelta(hours=1), flags=["flag"], priority=1)
    add_job("a", [2], job_key="key", job_key_mode=JobKeyMode.UNSAFE_DEDUPE)
    add_jobs([JobSpec("b", [3], job_key="key"), JobSpec("c", queue_name="new"), JobSpec("a")])
    for arguments in VERBS:
        operate(*(argument.format(id=job_id) for argument in arguments))
    queries = (
        *QUERIES,
        "q=task:a",
        "q=key:k",
        "q=queue:q",
        "state=failed&q=task:a",
        "q=a",
        "q=id:1..5",
        "q=exception:E",
        "q=limit:a",
    )
    for url in (*pages.ALL_PAGES, *(f"{pages.JOBS}?{query}" for query in queries), pages.job_url(job_id)):
        client.get(url)
    for action in ("run_now", "run_next", "retry", "reschedule", "fail", "delete"):
        pages.act_on_all(client, action, "task:a", confirmed="1", priority="1")
    with connection.cursor() as cursor:
        error_groups.error_groups_within(cursor, NO_IDS, schema=SCHEMA)
        paused = [Pause(kind=kind, name="a", paused_at=minutes_ago(1)) for kind in PauseKind]
        overview.oldest_unpaused(cursor, paused, schema=SCHEMA)
    clear_queue()
