"""Searches find exactly the jobs that meet their conditions, on every tab, in pages of any size, and in actions."""

from __future__ import annotations

import fnmatch
import json
import random
from collections.abc import Callable, Iterator
from dataclasses import replace
from typing import Any
from uuid import uuid4

import pytest
from django.conf import settings
from django.db import connection, transaction
from pytest_django import DjangoDbBlocker

from django_graphile_worker.admin.databases import Session, reading
from django_graphile_worker.admin.search.expressions import Either, Node, Not, parse_expression
from django_graphile_worker.admin.search.job_search import parse_search
from django_graphile_worker.admin.search.name_lookup import DatabaseNames
from django_graphile_worker.admin.search.search_criteria import ANY_OF, number_range
from django_graphile_worker.admin.search.search_query import SearchTerm
from django_graphile_worker.registry import label_of
from django_graphile_worker.sql.inspection.job_search import search
from django_graphile_worker.sql.inspection.job_search.counts import count_list, count_states
from django_graphile_worker.sql.inspection.job_search.criteria import STATES, Criteria, State
from django_graphile_worker.sql.job_actions import bulk_steps
from django_graphile_worker.sql.statements import statement
from tests.support.factories import make_job, minutes_ago
from tests.support.limits import make_key, park_job

SCHEMA = settings.GRAPHILE_WORKER["SCHEMA"]

TASKS = ["send_receipt", "charge_card", "shop.pack@emails", "re_charge"]
QUEUES = [None, None, "eu-1", "eu-2", "charge-queue"]
KINDS: list[dict[str, Any]] = [
    {},
    {"flags": {"slow": True}},
    {"flags": {"slow": True, "charge-flag": True}},
    {"attempts": 1, "last_error": "shop.printing.NoPrinter: room 1"},
    {"attempts": 25, "last_error": "KeyError: 'amount'"},
    {"attempts": 25, "last_error": "shop.NoPrinter: timed out\n\nNot tried again after attempt 3 of 25."},
    {"locked_by": "web-1-abc", "attempts": 1, "last_error": "KeyError: 'again'"},
    {"locked_by": "web-2-def"},
]

ROWS = f"""select job.id, task.identifier as task, queue.queue_name as queue, job.key, job.flags, job.priority,
    job.attempts, job.max_attempts, job.last_error, job.payload, job.locked_by, job.is_available,
    job.run_at <= now() as is_due, job.run_at = 'infinity' as is_limited
from "{SCHEMA}"._private_jobs as job
left join "{SCHEMA}"._private_tasks as task on task.id = job.task_id
left join "{SCHEMA}"._private_job_queues as queue on queue.id = job.job_queue_id"""


def _make_jobs() -> None:
    chance = random.Random(4)
    for number in range(240):
        make_job(
            chance.choice(TASKS),
            {"user": number % 5, "name": chance.choice(["Ada", "ÄDA", 'say "no"'])},
            queue_name=chance.choice(QUEUES),
            key=f"order-{number}" if number % 7 == 0 else None,
            priority=chance.choice([-1, 0, 0, 2]),
            run_at=minutes_ago(chance.choice([10, 5, 1, -5, -5, -10])),
            updated_at=minutes_ago(chance.choice([1, 2, 2, 3])),
            **chance.choice(KINDS),
        )
    key = make_key("account:{account}", "account:1")
    for number in range(6):
        park_job(key, TASKS[number % 2], run_at=minutes_ago(3))
    with connection.cursor() as cursor:
        # Actions skip jobs that were changed after they began.
        cursor.execute(
            f'update "{SCHEMA}"._private_jobs set updated_at = %s where updated_at >= now()', [minutes_ago(1)]
        )


@pytest.fixture(scope="module")
def jobs(django_db_setup: None, django_db_blocker: DjangoDbBlocker) -> Iterator[list[dict[str, Any]]]:
    """Jobs that all tests of this module read, in a transaction around those of the tests."""
    with django_db_blocker.unblock(), transaction.atomic():
        _make_jobs()
        with connection.cursor() as cursor:
            cursor.execute(ROWS)
            names = [column.name for column in cursor.description]
            rows = [dict(zip(names, row, strict=True)) for row in cursor.fetchall()]
        for row in rows:
            row["flags"] = json.loads(row["flags"]) if isinstance(row["flags"], str) else row["flags"] or {}
            row["payload"] = row["payload"] if isinstance(row["payload"], str) else json.dumps(row["payload"])
            row["state"] = _state(row)
        yield rows
        transaction.set_rollback(True)


def _state(row: dict[str, Any]) -> str:
    if row["locked_by"]:
        return "running"
    if not row["is_available"]:
        return "failed"
    if row["is_limited"]:
        return "limited"
    return "ready" if row["is_due"] else "retrying" if row["attempts"] else "scheduled"


def _fits(name: str | None, pattern: str) -> bool:
    return name is not None and fnmatch.fnmatchcase(name, pattern)


def _error_name(row: dict[str, Any]) -> str | None:
    has_failed = not row["locked_by"] and row["attempts"] > 0 and row["last_error"]
    return str(row["last_error"]).split(":")[0] if has_failed else None


def _attempts(row: dict[str, Any]) -> int:
    return 3 if "attempt 3 of" in (row["last_error"] or "") else int(row["attempts"])


def _in(number: int, value: str) -> bool:
    low, high = number_range(value, -99, 99)
    return (low is None or number >= low) and (high is None or number <= high)


def _has_word(row: dict[str, Any], word: str) -> bool:
    names = [row["task"], row["queue"] or "", row["key"] or "", *row["flags"]]
    return any(word in name for name in names)


MEANINGS: dict[str, Callable[[dict[str, Any], str], bool]] = {
    "": _has_word,
    "id": lambda row, value: str(row["id"]) in value.split(","),
    "task": lambda row, value: _fits(row["task"], value),
    "label": lambda row, value: _fits(label_of(row["task"]), value),
    "queue": lambda row, value: _fits(row["queue"], value),
    "key": lambda row, value: _fits(row["key"], value),
    "flag": lambda row, value: any(_fits(flag, value) for flag in row["flags"]),
    "state": lambda row, value: row["state"] in ({"waiting": ("scheduled", "retrying")}.get(value, (value,))),
    "priority": lambda row, value: _in(row["priority"], value),
    "attempts": lambda row, value: _in(_attempts(row), value),
    "exception": lambda row, value: _fits(_error_name(row), value) or _fits(_error_name(row), f"*.{value}"),
    "error": lambda row, value: value.lower() in (row["last_error"] or "").lower(),
    "payload": lambda row, value: value.lower() in json.dumps(json.loads(row["payload"]), ensure_ascii=False).lower(),
    "payload.user": lambda row, value: str(json.loads(row["payload"]).get("user")) == value,
    "worker": lambda row, value: _fits(row["locked_by"], value),
}
TERMS = [
    "task:send_receipt", "task:*charge*", "task:charge_card", "task:none", "label:emails", "label:e*", "queue:eu-1",
    "queue:eu-*", "queue:none*", "key:order-7", "key:order-1*", "key:*-14", "flag:slow", "flag:charge-*",
    "state:failed",
    "state:running", "state:retrying", "state:waiting", "state:limited", "priority:0", "priority:>0", "priority:-1..0",
    "attempts:>3", "attempts:1..3", "attempts:3", "exception:NoPrinter", "exception:KeyError", "exception:shop.*",
    "error:TIMED", "payload.user:3", "payload:äda", "worker:web-1-abc", "worker:web-*", "charge", "eu-", "order-1",
    "slow", "emails",
]  # fmt: skip


def _meets(node: Node | None, row: dict[str, Any]) -> bool:
    """Return whether a row meets an expression, as the guide describes it."""
    if node is None:
        return True
    if isinstance(node, SearchTerm):
        return MEANINGS[node.name](row, node.value)
    if isinstance(node, Not):
        return not _meets(node.operand, row)
    if isinstance(node, Either):
        return any(_meets(each, row) for each in node.operands)
    by_name: dict[object, list[SearchTerm]] = {}
    for place, each in enumerate(node.operands):
        if isinstance(each, SearchTerm):
            by_name.setdefault(each.name if each.name in ANY_OF else place, []).append(each)
    of_terms = all(any(_meets(each, row) for each in terms) for terms in by_name.values())
    return of_terms and all(_meets(each, row) for each in node.operands if not isinstance(each, SearchTerm))


def _random_text(chance: random.Random, depth: int = 2) -> str:
    kind = chance.choice("tttnoa") if depth else "t"
    if kind == "n":
        return f"-({_random_text(chance, depth - 1)})"
    if kind in "oa":
        parts = [f"({_random_text(chance, depth - 1)})" for _ in range(chance.randint(2, 3))]
        return (" OR " if kind == "o" else " ").join(parts)
    return chance.choice(TERMS)


def _pages(session: Session, criteria: Criteria, limit: int) -> list[list[int]]:
    pages: list[list[int]] = []
    token: str | None = None
    while True:
        found = search.find(session.cursor, criteria, schema=session.schema, limit=limit, after=token)
        pages.append(found.ids)
        token = found.next_token
        if token is None:
            return pages
        assert len(pages) < 400


def _criteria(session: Session, text: str) -> Criteria:
    query = parse_search(text, DatabaseNames(session, sees_payloads=True))
    assert not query.mistakes, (text, query.mistakes)
    return query.criteria


def test_searches__find_exactly_the_jobs_that_meet_them(jobs: list[dict[str, Any]], db: None) -> None:
    chance = random.Random(9)
    texts = ["", *TERMS, *(f"-{term}" for term in TERMS), *(_random_text(chance) for _ in range(30))]
    states = [State.ANY, *STATES, State.WAITING]
    with reading("default") as session:
        for number, text in enumerate(texts):
            criteria = _criteria(session, text)
            root = parse_expression(text).root
            for state in {State.ANY, states[number % len(states)]}:
                expected = {row["id"] for row in jobs if _meets(root, row) and _is_in(row, state)}
                here = replace(criteria, state=state)
                found = [job_id for page in _pages(session, here, 13) for job_id in page]
                assert sorted(found) == sorted(expected), (text, state)
                counted = count_list(session.cursor, here, schema=session.schema)
                assert (counted.number, counted.is_more) == (len(expected), False), (text, state)


def _is_in(row: dict[str, Any], state: State) -> bool:
    if state is State.WAITING:
        return row["state"] in ("scheduled", "retrying")
    return state is State.ANY or row["state"] == state.value


def test_previous_pages__are_the_pages_before(jobs: list[dict[str, Any]], db: None) -> None:
    with reading("default") as session:
        for text in (
            "task:charge_card OR queue:eu-*",
            "charge",
            "exception:NoPrinter OR task:send_receipt",
            "-task:x*",
        ):
            criteria = _criteria(session, text)
            forwards = [job_id for page in _pages(session, criteria, 9) for job_id in page]
            backwards: list[int] = []
            token: str | None = None
            while True:
                found = search.find(
                    session.cursor, criteria, schema=session.schema, limit=9, after=token, is_backwards=True
                )
                backwards += found.ids
                token = found.next_token
                if token is None:
                    break
            assert backwards == forwards[::-1], text


def test_tabs__count_what_they_list(jobs: list[dict[str, Any]], db: None) -> None:
    with reading("default") as session:
        for text in (
            "task:charge_card OR task:re_charge",
            "task:charge_card OR key:order-7",
            "-task:charge_card",
            "worker:web-*",
        ):
            counts = count_states(session.cursor, _criteria(session, text), schema=session.schema)
            for state in STATES:
                listed = [
                    row for row in jobs if row["state"] == state.value and _meets(parse_expression(text).root, row)
                ]
                assert counts[state].number == len(listed), (text, state)


def test_tabs__count_no_scheduled_job_for_the_name_of_an_error(jobs: list[dict[str, Any]], db: None) -> None:
    assert any(row["state"] == "scheduled" for row in jobs)
    with reading("default") as session:
        counts = count_states(session.cursor, _criteria(session, "exception:KeyError"), schema=session.schema)
    assert counts[State.SCHEDULED].number == 0
    assert counts[State.FAILED].number > 0


def test_actions__collect_exactly_the_jobs_that_a_search_finds(jobs: list[dict[str, Any]], db: None) -> None:
    chance = random.Random(2)
    texts = [*(_random_text(chance) for _ in range(5)), "charge", "-charge", "state:failed OR flag:slow"]
    with reading("default") as session:
        for text in texts:
            criteria = _criteria(session, text)
            for state in (State.ANY, State.READY, State.FAILED):
                expected = {
                    row["id"] for row in jobs
                    if _meets(parse_expression(text).root, row) and _is_in(row, state)
                }  # fmt: skip
                assert _collected(session, replace(criteria, state=state)) == expected, (text, state)


def _collected(session: Session, criteria: Criteria) -> set[int]:
    """Return the jobs that an action on all that match would change."""
    owner = bulk_steps.Owner(uuid4(), "delete", "operator")
    with transaction.atomic():
        parts = bulk_steps.parts(session.cursor, criteria, STATES, schema=session.schema)
        bulk_steps.collect(session.cursor, owner, parts, schema=session.schema, first=0, is_over=lambda: False)
        stored = "select unnest(job_ids) from :SCHEMA._private_action_steps where action_id = %s"
        session.cursor.execute(statement(stored, session.schema), [owner.action_id])
        found = [job_id for (job_id,) in session.cursor.fetchall()]
        transaction.set_rollback(True)
    assert len(found) == len(set(found))
    return set(found)
