"""Every page costs the same however many jobs there are, and a list reads each of many schedules only once."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from typing import Any

import pytest
from django.conf import settings
from django.db import connection
from django.test import Client

from django_graphile_worker.admin.jobs import change_list, search
from django_graphile_worker.admin.jobs.change_list import TABS
from django_graphile_worker.sql.inspection import statement_limits
from tests.support import admin_pages as pages
from tests.support.factories import make_job, make_queue, minutes_ago

SCHEMA = settings.GRAPHILE_WORKER["SCHEMA"]


class Plans:
    """An execute wrapper that explains every statement, and keeps how many rows it reads: by table, and of jobs."""

    def __init__(self, *, of_all: bool = False) -> None:
        # Also statements that Django composes.
        self.of_all = of_all
        self.rows_read: dict[str, int] = {}
        self.rows_by_table: dict[str, int] = {}
        self.sequential: list[str] = []
        self.is_explaining = False

    def __call__(self, execute: Any, sql: str, params: Any, many: bool, context: Any) -> Any:
        is_read = "/* gw:" in sql or (self.of_all and sql.startswith("SELECT"))
        if not self.is_explaining and is_read and not re.search("gw:guard|explain", sql):
            self.is_explaining = True
            with context["connection"].cursor() as cursor:
                cursor.execute(f"explain (analyze, timing off, format json) {sql}", params)
                (plan,) = cursor.fetchone()
            self.is_explaining = False
            tag = (re.findall(r"gw:([\w-]+)", sql) or ["django"])[0]
            plans = plan if isinstance(plan, list) else json.loads(plan)
            for node in _nodes(plans[0]["Plan"]):
                self._note(tag, node)
        return execute(sql, params, many, context)

    def _note(self, tag: str, node: dict[str, Any]) -> None:
        table = node.get("Relation Name")
        read = (node["Actual Rows"] + node.get("Rows Removed by Filter", 0)) * node["Actual Loops"]
        if table is not None:
            self.rows_by_table[table] = self.rows_by_table.get(table, 0) + int(read)
        if table != "_private_jobs":
            return
        self.rows_read[tag] = self.rows_read.get(tag, 0) + int(read)
        if "Seq Scan" in node["Node Type"] or "Bitmap" in node["Node Type"]:
            self.sequential.append(tag)


def _nodes(plan: dict[str, Any]) -> Iterator[dict[str, Any]]:
    yield plan
    for child in plan.get("Plans", []):
        yield from _nodes(child)


LARGE_URLS = [
    pages.OVERVIEW,
    *(f"{pages.JOBS}?state={state.value}" for state in TABS),
    f"{pages.JOBS}?state=ready&q=task:large",
    f"{pages.JOBS}?state=ready&q=queue:lq5",
    f"{pages.JOBS}?state=scheduled&q=queue:lq5",
    f"{pages.JOBS}?state=failed&q=queue:lq5",
    f"{pages.JOBS}?state=failed&q=exception:KeyError",
    f"{pages.JOBS}?q=exception:KeyError",
    f"{pages.JOBS}?q=task:large",
    f"{pages.JOBS}?q=queue:lq5",
    f"{pages.JOBS}?task=large&queue=lq5",
    f"{pages.JOBS}?q=id:5",
    f"{pages.JOBS}?q=key:nope",
    pages.QUEUES,
    pages.WORKERS,
    pages.ERRORS,
    f"{pages.ERRORS}?q=large",
    f"{pages.OVERVIEW}?task=large",
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
    """Twelve thousand jobs: few for PostgreSQL, and many for a page that shows fifty."""

    ROWS = 12_000

    @pytest.fixture
    def long_table(self, db: None) -> None:
        """Fill the table after ANALYZE: with the statistics of an empty table, the planner does worst."""
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

    def test_page_of_a_ready_job__reads_few_of_the_jobs_before_it(self, admin_page: Client, long_table: None) -> None:
        pages.make_worker("django-worker-1", tasks=["large", "other"], concurrency=1)
        job = make_job("other", priority=3, run_at=minutes_ago(1))
        plans = Plans()
        with connection.execute_wrapper(plans):
            page = admin_page.get(pages.job_url(job))
        assert "More than 1,000 jobs are before it." in pages.text(page)
        assert plans.sequential == []
        assert plans.rows_read["jobs-before"] <= 1_200
        assert plans.rows_read["holders"] <= 10

    def test_the_number_of_statements_does_not_grow(
        self, admin_page: Client, long_table: None, django_assert_max_num_queries: Any
    ) -> None:
        for url in LARGE_URLS:
            with django_assert_max_num_queries(35, info=url):
                admin_page.get(url)

    def test_a_search_reads_as_many_jobs_as_it_says(
        self, admin_page: Client, long_table: None, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        for module in (search, change_list):
            monkeypatch.setattr(module, "MAX_SEARCHED", 1_000)
        with connection.cursor() as cursor:
            cursor.execute(f'analyze "{SCHEMA}"._private_jobs')
        for state in ("ready", "failed", "all"):
            plans = Plans(of_all=True)
            with connection.execute_wrapper(plans):
                page = admin_page.get(pages.JOBS, {"q": "payload:nope", "state": state})
            assert "Only the first 1,000 jobs of the list were searched." in pages.text(page)
            # The ids of those, the rows of those, and the counts.
            assert sum(plans.rows_read.values()) <= 6 * 1_000 + 1_000, state

    def test_lists_read_no_payload_and_lock_nothing(self, admin_page: Client, long_table: None) -> None:
        recorder = pages.StatementRecorder()
        with connection.execute_wrapper(recorder):
            admin_page.get(pages.JOBS, {"state": "ready"})
        about_jobs = [each for each in recorder.statements if "_private_jobs" in each]
        assert about_jobs
        with_payload = [each for each in about_jobs if "payload" in each]
        assert all("gw:payload-beginnings" in each for each in with_payload)
        assert not [each for each in about_jobs if re.search(r"\bfor (no key )?(update|share)\b", each)]
        assert statement_limits.FIXED_PLAN["enable_seqscan"] == "off"


# The overview counts up to five thousand in each state; the others up to a thousand in each of five.
MOST_READ = {
    "count-states": 31_000,
    "task-backlog": 31_000,
    "error-groups": 31_000,
    "busiest-queues": 25_000,
    "queues": 25_000,
    # Up to 50 jobs of each of a thousand queues, to show the fullest first.
    "active-queues": 50_000,
}


FILL_SCHEDULES = f"""with schedule as (
    insert into "{SCHEMA}"._private_schedules (name, task, cron, time_zone, description)
    select 'tenant ' || to_char(n, 'FM00000'), 'refresh_search_index', '0 4 * * *', 'Europe/Berlin', ''
    from generate_series(1, %(number)s) as n returning id
), run as (
    select schedule.id, run, 1000000 + run * %(number)s + row_number() over (order by run, schedule.id) as job_id
    from schedule, generate_series(1, 3) as run
), result as (
    insert into "{SCHEMA}"._private_results (job_id, task_identifier, status, added_at, expires_at)
    select job_id, 'refresh_search_index', 1, now(), now() + interval '1 day' from run
)
select id, job_id from run order by run, id"""
FILL_RUNS = f"""insert into "{SCHEMA}"._private_schedule_runs (schedule_id, tick, job_id, kind)
select id, now(), job_id, 'on_time' from unnest(%s::bigint[], %s::bigint[]) as run(id, job_id)"""
LAST_RUNS = f"""update "{SCHEMA}"._private_schedules as schedule
set last_job_id = run.job_id, last_tick = run.tick, next_at = now() + interval '1 hour'
from "{SCHEMA}"._private_schedule_runs as run
where run.schedule_id = schedule.id and run.id > %s"""


class TestManySchedules:
    NUMBER = 2_000

    @pytest.fixture
    def schedules(self, db: None) -> None:
        """Fill the tables after ANALYZE: with the statistics of an empty table, the planner does worst."""
        with connection.cursor() as cursor:
            cursor.execute(FILL_SCHEDULES, {"number": 10})
            for table in ("results", "schedules"):
                cursor.execute(f'delete from "{SCHEMA}"._private_{table}')
                cursor.execute(f'analyze "{SCHEMA}"._private_{table}')
            cursor.execute(FILL_SCHEDULES, {"number": self.NUMBER})
            ids, jobs = zip(*cursor.fetchall(), strict=True)
            cursor.execute(FILL_RUNS, [list(ids), list(jobs)])
            cursor.execute(f'select max(id) from "{SCHEMA}"._private_schedule_runs')
            cursor.execute(LAST_RUNS, [cursor.fetchone()[0] - self.NUMBER])

    def test_lists__read_each_schedule_once_and_the_runs_that_they_show(
        self, admin_page: Client, schedules: None
    ) -> None:
        for query in ("", "?q=tenant", "?state=failing", "?o=4&p=40"):
            read = _rows_read(admin_page, f"{pages.SCHEDULES}{query}")
            # Each once, and those of the page.
            assert read["_private_schedules"] <= self.NUMBER + 200, query
            # The result of the last run of each tells that none fails; then the runs of the page.
            assert read["_private_results"] <= self.NUMBER + 200, query
            assert read.get("_private_schedule_runs", 0) <= 200, query
            assert read.get("_private_jobs", 0) <= 200, query

    def test_search__reads_the_runs_of_what_it_finds(self, admin_page: Client, schedules: None) -> None:
        read = _rows_read(admin_page, f"{pages.SCHEDULES}?q=tenant+0007")
        assert read["_private_schedules"] <= self.NUMBER + 200
        assert read["_private_results"] <= 200

    def test_overview__reads_each_schedule_and_its_last_job_once(self, admin_page: Client, schedules: None) -> None:
        read = _rows_read(admin_page, pages.OVERVIEW)
        assert read["_private_schedules"] <= 2 * self.NUMBER + 10
        assert read["_private_results"] <= self.NUMBER + 10
        assert read.get("_private_schedule_runs", 0) <= 10

    def test_pages__are_counted_and_the_last_has_the_last(self, admin_page: Client, schedules: None) -> None:
        page = admin_page.get(pages.SCHEDULES, {"source": "database"}).context["cl"]
        assert (len(page.result_list), page.place(), page.tabs()[0]["count"]) == (50, "Page 1 of 40", "2,000")
        last = admin_page.get(pages.SCHEDULES, {"source": "database", "p": "40"}).context["cl"]
        assert last.result_list[-1].name == "tenant 02000"
        assert (last.next_url(), bool(last.previous_url())) == ("", True)


def _rows_read(client: Client, url: str) -> dict[str, int]:
    """Return how many rows of each table the statements of a page read."""
    plans = Plans()
    with connection.execute_wrapper(plans):
        assert client.get(url).status_code == 200
    return plans.rows_by_table
