"""The search box, the order of lists, their pages; and that all of it costs the same however long the table is."""

from __future__ import annotations

import json
import random
import re
from collections.abc import Iterator
from typing import Any

import pytest
from django.conf import settings
from django.db import connection
from django.test import Client

from django_graphile_worker.admin import search as chips
from django_graphile_worker.admin.jobs import list_view
from django_graphile_worker.sql.inspection import criteria, index_walks, limits, search
from django_graphile_worker.sql.inspection.criteria import Criteria, State
from tests.integration.admin import pages
from tests.integration.admin.conftest import MakeClient
from tests.support.factories import make_failed_job, make_job, make_queue, minutes_ago
from tests.support.operating import execute

SCHEMA = settings.GRAPHILE_WORKER["SCHEMA"]


def read(text: str, **options: Any) -> chips.Query:
    return chips.read(text, **({"sees_payloads": True} | options))


class TestChips:
    @pytest.mark.parametrize(
        ("text", "expected"),
        [
            ("task:send queue:eu", {"tasks": ("send",), "queues": ("eu",)}),
            ('key:"a b" key:c', {"keys": ("a b", "c")}),
            (r'error:"say \"no\""', {"errors": ('say "no"',)}),
            ("17", {"ids": (17,)}),
            ("id:1,2", {"ids": (1, 2)}),
            ("priority:3", {"priority": (3, 3)}),
            ("priority:-5..5", {"priority": (-5, 5)}),
            ("payload.user.id:5", {"payload": ((("user", "id"), "5"),)}),
            ("task:send_*", {"tasks": ("send_a", "send_b")}),
            ("nothing_like_it", {"errors": ("nothing_like_it",)}),
            (
                "flag:slow worker:w exception:KeyError",
                {"flags": ("slow",), "workers": ("w",), "error_names": ("KeyError",)},
            ),
        ],
    )
    def test_become_criteria(self, text: str, expected: dict[str, Any]) -> None:
        query = read(text, known_tasks=["send_a", "send_b", "other"])
        assert query.criteria == Criteria(**expected)
        assert not query.mistakes

    def test_of_time_are_stretches(self) -> None:
        created = read("created:2026-01-01..2026-01-31").criteria.created_at
        assert [moment.isoformat() for moment in created if moment] == [
            "2026-01-01T00:00:00+00:00",
            "2026-01-31T23:59:59.999999+00:00",
        ]
        low, high = read("due:2h").criteria.run_at
        assert low
        assert high
        assert (high - low).total_seconds() == 7200

    @pytest.mark.parametrize("text", ["tusk:a", "id:x", "priority:high", "created:soon", "payload.token:x", 'task:""'])
    def test_that_make_no_sense_are_told(self, text: str) -> None:
        query = read(text, sees_payloads=False)
        assert query.criteria == Criteria()
        assert len(query.mistakes) == 1

    @pytest.mark.parametrize("text", ["a " * 31, "key:" + "k" * 2_000])
    def test_that_are_too_many_or_too_long_are_told(self, text: str) -> None:
        """A search that silently loses its last condition finds more than was asked for."""
        (mistake,) = read(text).mistakes
        assert "expected at most" in mistake

    def test_that_were_mistyped_stay_in_the_box_and_in_every_link(self, admin_page: Client) -> None:
        for _ in range(60):
            make_failed_job("print_invoice")
        response = admin_page.get(pages.JOBS, {"q": "taks:print_invoice priority:0", "state": "failed"})
        context = response.context
        assert context["query"] == "taks:print_invoice priority:0"
        links = [tab["url"] for tab in context["tabs"]] + [chip["url"] for chip in context["chips"]]
        assert all("taks" in link for link in [*links, context["next_url"]])

    def test_written_and_read_again_are_the_same(self) -> None:
        values = ["plain", "with space", 'quo"te', "back\\slash", "a:b", "ünï", "'", "*"]
        written = chips.join([chips.SearchTerm("key", value) for value in values])
        assert read(written).criteria.keys == tuple(values)

    def test_a_bare_word_is_what_it_is_the_name_of(self, admin_page: Client) -> None:
        make_job("send", queue_name="eu", key="k1")
        for word, chip in [("send", "task:send"), ("eu", "queue:eu"), ("k1", "key:k1"), ("boom", "error:boom")]:
            assert admin_page.get(pages.JOBS, {"q": word}).context["query"] == chip

    def test_the_filter_form_becomes_chips(self, admin_page: Client) -> None:
        given = {"filter_task": "a b", "filter_priority": "1..2", "q": "queue:eu", "state": "ready"}
        response = admin_page.get(pages.JOBS, given)
        assert response.status_code == 302
        followed = admin_page.get(response["Location"])
        assert followed.context["query"] == 'queue:eu task:"a b" priority:1..2'
        assert followed.context["state"] == "ready"


def found(client: Client, **parameters: str) -> list[int]:
    return [line.id for line in client.get(pages.JOBS, parameters).context["lines"]]


class TestFinding:
    def test_each_filter_finds_its_jobs_and_no_others(self, admin_page: Client) -> None:
        wanted = make_job(
            "send",
            {"user": {"id": 5}},
            queue_name="eu",
            key="k",
            flags={"slow": True},
            priority=4,
            created_at=minutes_ago(5),
        )
        make_job("charge", {"user": {"id": 6}}, priority=9, created_at=minutes_ago(500))
        for query in (
            f"id:{wanted}", "key:k", "task:send", "queue:eu", "flag:slow", "priority:4", "priority:0..5",
            "payload.user.id:5", "created:1h", "task:send queue:eu flag:slow payload.user.id:5",
        ):  # fmt: skip
            assert found(admin_page, q=query) == [wanted], query
            assert found(admin_page, q=query, state="ready") == [wanted], query
            assert found(admin_page, q=query, state="failed") == [], query

    # What PostgreSQL's json takes and its operators refuse to read, beside what only looks like it.
    @pytest.mark.parametrize("user", ["superuser", "viewer"])
    def test_payloads_that_postgresql_cannot_read_are_passed_over(
        self, admin_page: Client, client_with: MakeClient, user: str
    ) -> None:
        client = admin_page if user == "superuser" else client_with()
        for payload in (
            r'{"x": "\u0000"}',
            r'{"\u0000": 1, "x": 1}',
            r'{"x": 1, "y": "\ud800"}',
            r'{"x": 1, "y": "\udc00\ud800"}',
            r'{"x": 1, "y": ["\uD83D x"]}',
            r'{"x": 1, "y": "\\\u0000"}',
        ):
            odd = make_job("odd")
            execute("update {schema}._private_jobs set payload = %s::json where id = %s", [payload, odd])
        others = [make_job("odd", {"x": 1, "y": text}) for text in ("1", "\U0001f600", r"\u0000", r"\\ud800")]
        assert found(client, q="payload.x:1") == list(reversed(others))
        assert found(client, q="payload.x:1 task:odd", state="ready") == others
        assert found(client, q="payload.y:1") == others[:1]
        assert len(found(client, q="task:odd")) == 10

    def test_errors_are_found_by_text_and_by_name(self, admin_page: Client) -> None:
        wanted = make_failed_job("send", error="KeyError: 'amount'\n\nTraceback in billing.py")
        make_failed_job("send", error="ValueError: no")
        for query in ("error:AMOUNT", "error:billing.py", "exception:KeyError"):
            assert found(admin_page, q=query) == [wanted]
            assert found(admin_page, q=query, state="failed") == [wanted]

    def test_running_jobs_are_found_by_their_worker(self, admin_page: Client) -> None:
        wanted = make_job("send", locked_by="w1")
        make_job("send", locked_by="w2")
        assert found(admin_page, q="worker:w1", state="running") == [wanted]


# Every kind of job that an index treats apart.
KINDS: list[dict[str, Any]] = [
    {},
    {"queue_name": "q1"},
    {"queue_name": "q2", "flags": {"a": True}},
    {"flags": {"a": True}},
    {"flags": {"b": True}, "attempts": 1, "last_error": "E: x"},
    {"attempts": 25, "last_error": "F: x"},
    {"attempts": 25, "last_error": None, "queue_name": "q1"},
    {"locked_by": "w"},
]

ORDERS = {
    "ready": ("is_available and run_at <= now()", "priority, run_at, id"),
    "scheduled": ("is_available and run_at > now() and attempts = 0", "run_at, id"),
    "retrying": ("is_available and run_at > now() and attempts > 0", "run_at, id"),
    "running": ("locked_at is not null", "locked_at, id"),
    "failed": ("locked_at is null and attempts >= max_attempts", "updated_at desc, id desc"),
    "all": ("true", "id desc"),
}


class TestOrderAndPages:
    @pytest.fixture(autouse=True)
    def many_jobs(self, db: None) -> None:
        chance = random.Random(3)
        for number in range(160):
            kind = KINDS[number % len(KINDS)]
            when = minutes_ago(chance.choice([10, 5, 5, 1, -1, -5, -5, -10]))
            changed = minutes_ago(chance.choice([1, 2, 2, 3]))
            make_job(
                f"task{number % 3}", priority=chance.choice([-1, 0, 0, 2]), run_at=when, updated_at=changed, **kind
            )

    @pytest.mark.parametrize("state", ORDERS)
    @pytest.mark.parametrize("query", ["", "task:task1", "queue:q1", "flag:a", "priority:0", "task:task0 queue:q2"])
    def test_pages_together_are_what_the_table_says(
        self, admin_page: Client, monkeypatch: pytest.MonkeyPatch, state: str, query: str
    ) -> None:
        monkeypatch.setattr(list_view, "PAGE_SIZE", 7)
        condition, order = ORDERS[state]
        with connection.cursor() as cursor:
            extra = " and ".join(SQL_OF[chip] for chip in query.split()) or "true"
            cursor.execute(f'select id from "{SCHEMA}"._private_jobs where {condition} and {extra} order by {order}')
            expected = [job_id for (job_id,) in cursor.fetchall()]
        seen: list[int] = []
        url = f"{pages.JOBS}?state={state}&q={query}"
        while url:
            page = admin_page.get(url)
            seen += [line.id for line in page.context["lines"]]
            url = page.context["next_url"]
            assert len(seen) <= len(expected)
        assert seen == expected

    @pytest.mark.parametrize("state", ORDERS)
    @pytest.mark.parametrize("query", ["", "queue:q1", "flag:a"])
    def test_pages_can_be_turned_back(
        self, admin_page: Client, monkeypatch: pytest.MonkeyPatch, state: str, query: str
    ) -> None:
        monkeypatch.setattr(list_view, "PAGE_SIZE", 5)
        seen: list[list[int]] = []
        url = f"{pages.JOBS}?state={state}&q={query}"
        while url:
            page = admin_page.get(url)
            seen.append([line.id for line in page.context["lines"]])
            url = page.context["next_url"]
        assert len(seen) > 1 or query
        for expected in seen[-2::-1]:
            assert page.context["previous_url"]
            page = admin_page.get(page.context["previous_url"])
            assert [line.id for line in page.context["lines"]] == expected
        assert not page.context["previous_url"]

    def test_counts_are_exact_below_the_cap(self, admin_page: Client) -> None:
        counts = {tab["state"]: tab["count"] for tab in admin_page.get(pages.JOBS).context["tabs"]}
        for state, (condition, _) in ORDERS.items():
            with connection.cursor() as cursor:
                cursor.execute(f'select count(*) from "{SCHEMA}"._private_jobs where {condition}')
                (number,) = cursor.fetchone()
            assert counts[state] == ("" if state == "all" else str(number))

    def test_counts_stop_at_the_cap(self, admin_page: Client, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr(list_view, "MOST_COUNTED", 5)
        counts = {tab["state"]: tab["count"] for tab in admin_page.get(pages.JOBS).context["tabs"]}
        assert counts["ready"] == "5+"

    def test_a_search_gives_up_after_a_while_and_goes_on_when_asked(
        self, admin_page: Client, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setattr(search, "MOST_EXAMINED_OF_MANY", 20)
        wanted = make_job("task0", {"needle": "yes"}, run_at=minutes_ago(1), priority=5)
        page = admin_page.get(pages.JOBS, {"state": "ready", "q": "payload.needle:yes"})
        looks = 1
        while not page.context["lines"]:
            assert page.context["examined"] == "20"
            page = admin_page.get(page.context["next_url"])
            looks += 1
        assert [line.id for line in page.context["lines"]] == [wanted]
        assert looks > 2


SQL_OF = {
    "task:task0": f"task_id = (select id from \"{SCHEMA}\"._private_tasks where identifier = 'task0')",
    "task:task1": f"task_id = (select id from \"{SCHEMA}\"._private_tasks where identifier = 'task1')",
    "queue:q1": f"job_queue_id = (select id from \"{SCHEMA}\"._private_job_queues where queue_name = 'q1')",
    "queue:q2": f"job_queue_id = (select id from \"{SCHEMA}\"._private_job_queues where queue_name = 'q2')",
    "flag:a": "flags ? 'a'",
    "priority:0": "priority = 0",
}


class Plans:
    """Explains every statement on the way, and keeps how many rows each has read."""

    def __init__(self) -> None:
        self.rows_read: dict[str, int] = {}
        self.sequential: list[str] = []
        self.is_explaining = False

    def __call__(self, execute: Any, sql: str, params: Any, many: bool, context: Any) -> Any:
        if not self.is_explaining and "/* gw:" in sql and "gw:guard" not in sql:
            self.is_explaining = True
            with context["connection"].cursor() as cursor:
                cursor.execute(f"explain (analyze, timing off, format json) {sql}", params)
                (plan,) = cursor.fetchone()
            self.is_explaining = False
            tag = re.findall(r"gw:([\w-]+)", sql)[0]
            plans = plan if isinstance(plan, list) else json.loads(plan)
            for node in _nodes(plans[0]["Plan"]):
                self._note(tag, node)
        return execute(sql, params, many, context)

    def _note(self, tag: str, node: dict[str, Any]) -> None:
        if node.get("Relation Name") != "_private_jobs":
            return
        read = (node["Actual Rows"] + node.get("Rows Removed by Filter", 0)) * node["Actual Loops"]
        self.rows_read[tag] = self.rows_read.get(tag, 0) + int(read)
        if "Seq Scan" in node["Node Type"] or "Bitmap" in node["Node Type"]:
            self.sequential.append(tag)


def _nodes(plan: dict[str, Any]) -> Iterator[dict[str, Any]]:
    yield plan
    for child in plan.get("Plans", []):
        yield from _nodes(child)


LARGE_URLS = [
    pages.OVERVIEW,
    *(f"{pages.JOBS}?state={state}" for state in ORDERS),
    f"{pages.JOBS}?state=ready&q=task:large",
    f"{pages.JOBS}?state=ready&q=queue:lq5",
    f"{pages.JOBS}?state=failed&q=exception:KeyError",
    f"{pages.JOBS}?q=id:5",
    f"{pages.JOBS}?q=key:nope",
    pages.QUEUES,
    pages.WORKERS,
    pages.ERRORS,
]


FILL = f"""insert into "{SCHEMA}"._private_jobs
    (task_id, job_queue_id, priority, run_at, attempts, last_error, payload)
select task.id, case when n %% 4 = 0 then (
        select id from "{SCHEMA}"._private_job_queues where queue_name = 'lq' || n %% 20) end,
    0, case when n %% 3 = 0 then now() + interval '1 day' else now() - interval '1 hour' end,
    case when n %% 6 = 1 then 25 when n %% 6 = 3 then 2 else 0 end,
    case when n %% 6 in (1, 3) then 'KeyError: ' || n end, '{{"pad": "x"}}'
from generate_series(1, %s) as n, "{SCHEMA}"._private_tasks as task
where task.identifier = 'large'"""


class TestALongTable:
    """Twelve thousand jobs are few for PostgreSQL, and many for a page that looks at fifty."""

    ROWS = 12_000

    @pytest.fixture
    def long_table(self, db: None) -> None:
        """What the planner knows of it was true when the table was empty: the worst time to look."""
        for number in range(20):
            make_queue(f"lq{number}")
        make_job("large")
        with connection.cursor() as cursor:
            cursor.execute(FILL, [self.ROWS])
            cursor.execute(f'delete from "{SCHEMA}"._private_jobs')
            cursor.execute(f'analyze "{SCHEMA}"._private_jobs')
            cursor.execute(FILL, [self.ROWS])

    def test_no_page_reads_what_it_does_not_show(self, admin_page: Client, long_table: None) -> None:
        for url in LARGE_URLS:
            plans = Plans()
            with connection.execute_wrapper(plans):
                response = admin_page.get(url)
            assert response.status_code == 200, (url, pages.text(response))
            assert plans.rows_read, url
            assert plans.sequential == [], url
            # Counts go to a thousand (on the overview to five thousand, for each of the states), pages to fifty.
            for tag, rows in plans.rows_read.items():
                assert rows <= MOST_READ.get(tag, 1_200), (url, tag, rows)

    def test_the_number_of_statements_does_not_grow(
        self, admin_page: Client, long_table: None, django_assert_max_num_queries: Any
    ) -> None:
        for url in LARGE_URLS:
            with django_assert_max_num_queries(17):
                admin_page.get(url)

    def test_lists_read_no_payload(self) -> None:
        ready = Criteria(state=State.READY)
        order = index_walks.ORDERS[State.READY]
        text, parameters = search._statement(ready, search.looked_at_by(ready), order, most=51, wanted=51, after=None)
        assert "payload" not in text + search.ROWS
        assert parameters["most"] == 51

    def test_an_adder_and_a_claimer_do_not_wait_for_a_page(self) -> None:
        assert not re.search("for (no key )?(update|share)", search.ROWS + "".join(criteria.CONDITIONS.values()))
        assert limits.SETTINGS["enable_seqscan"] == "off"


# The overview counts up to five thousand in each state; the others up to a thousand in each of five.
MOST_READ = {
    "count-jobs": 31_000,
    "task-backlog": 4_100,
    "error-groups": 31_000,
    "busiest-queues": 25_000,
    "queues": 25_000,
    "find-jobs": 5_200,
}
