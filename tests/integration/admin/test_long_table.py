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

from django_graphile_worker.admin.jobs.job_list.list_view import TABS
from django_graphile_worker.sql.inspection import statement_limits
from django_graphile_worker.sql.inspection.job_search import criteria, orders, search, sorts
from django_graphile_worker.sql.inspection.job_search.criteria import Criteria, State
from django_graphile_worker.sql.inspection.job_search.index_walks import looked_at_by
from tests.support import admin_pages as pages
from tests.support.factories import make_job, make_queue, make_task

SCHEMA = settings.GRAPHILE_WORKER["SCHEMA"]


class Plans:
    """An execute wrapper that explains every statement, and keeps how many rows it reads: by table, and of jobs."""

    def __init__(self) -> None:
        self.rows_read: dict[str, int] = {}
        self.rows_by_table: dict[str, int] = {}
        self.sequential: list[str] = []
        self.is_explaining = False

    def __call__(self, execute: Any, sql: str, params: Any, many: bool, context: Any) -> Any:
        if not self.is_explaining and "/* gw:" in sql and not re.search("gw:guard|explain", sql):
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
    f"{pages.JOBS}?state=ready&sort=-time&size=200",
    f"{pages.JOBS}?state=scheduled&sort=-priority&size=200",
    f"{pages.JOBS}?state=failed&sort=time&size=200",
    f"{pages.JOBS}?sort=id&size=50",
    f"{pages.JOBS}?state=ready&q=task:large",
    f"{pages.JOBS}?state=ready&q=queue:lq5",
    f"{pages.JOBS}?state=failed&q=exception:KeyError",
    f"{pages.JOBS}?q=task:large",
    f"{pages.JOBS}?q=queue:lq5",
    f"{pages.JOBS}?q=task:large OR queue:lq5",
    f"{pages.JOBS}?state=ready&q=task:large OR queue:lq5",
    f"{pages.JOBS}?q=-task:other queue:lq*",
    f"{pages.JOBS}?q=lq5",
    f"{pages.JOBS}?q=exception:KeyError OR queue:lq5",
    f"{pages.JOBS}?q=payload:nope",
    f"{pages.JOBS}?state=ready&q=payload:nope",
    f"{pages.JOBS}?q=nothing",
    f"{pages.JOBS}complete/?typed=task:",
    f"{pages.JOBS}complete/?typed=l",
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

    def test_the_number_of_statements_does_not_grow(
        self, admin_page: Client, long_table: None, django_assert_max_num_queries: Any
    ) -> None:
        for url in LARGE_URLS:
            with django_assert_max_num_queries(30, info=url):
                admin_page.get(url)

    def test_all_jobs_are_estimated_and_a_search_says_what_is_certain(
        self, admin_page: Client, long_table: None
    ) -> None:
        # The estimate of a table whose statistics are out of date may be less than what was counted.
        assert re.fullmatch(r"\d,000\+", admin_page.get(pages.JOBS).context["tabs"][0]["count"])
        with connection.cursor() as cursor:
            cursor.execute(f'analyze "{SCHEMA}"._private_jobs')
        page = admin_page.get(pages.JOBS, {"state": "ready"})
        estimate = page.context["tabs"][0]["count"]
        assert re.fullmatch(r"about [\d,]+", estimate)
        # The planner estimates to within some percent.
        assert int(re.sub(r"\D", "", estimate)) == pytest.approx(self.ROWS, rel=0.2)
        assert page.context["total"] == ("1,000+", False)
        assert "Select all that match (1,000+)" in pages.body(page)
        page = admin_page.get(pages.JOBS, {"q": "priority:0.."})
        assert re.fullmatch(r"\d,000\+", page.context["tabs"][0]["count"])

    def test_lists_read_no_payload(self) -> None:
        ready = Criteria(state=State.READY)
        order = orders.ORDERS[State.READY]
        text, parameters = search._statement(ready, looked_at_by(ready), order, most=51, wanted=51, after=None)
        assert "payload" not in text + search.ROWS
        assert parameters["most"] == 51

    def test_pages_lock_no_jobs(self) -> None:
        assert not re.search("for (no key )?(update|share)", search.ROWS + "".join(criteria.CONDITIONS.values()))
        assert statement_limits.SETTINGS["enable_seqscan"] == "off"


FILL_RANGES = f"""insert into "{SCHEMA}"._private_jobs (task_id, job_queue_id, priority, run_at, payload, flags)
select task.id, case when n %% 3 = 1 then queue.id end, n %% 4, now() - interval '1 hour' + n * interval '1 s',
    json_build_object(), case when n %% 3 = 2 then jsonb_build_object('slow', true) end
from "{SCHEMA}"._private_tasks as task, "{SCHEMA}"._private_job_queues as queue, generate_series(1, %(rows)s) as n
where task.identifier = any (%(tasks)s) and queue.queue_name = 'ranged'"""


class TestManyRanges:
    """Every task has jobs of every priority, with and without a queue, so that an index has many ranges."""

    TASKS, ROWS = 12, 700

    @pytest.fixture
    def ranges(self, db: None) -> None:
        make_queue("ranged")
        names = [f"range_{number}" for number in range(self.TASKS)]
        for name in names:
            make_task(name)
        with connection.cursor() as cursor:
            cursor.execute(FILL_RANGES, {"rows": self.ROWS, "tasks": names})

    @pytest.mark.parametrize("query", ["", "&sort=time", "&sort=-time", "&sort=-priority", "&q=payload.user:nope"])
    def test_page__reads_each_range_as_far_as_it_shows(self, admin_page: Client, ranges: None, query: str) -> None:
        plans = Plans()
        with connection.execute_wrapper(plans):
            assert admin_page.get(f"{pages.JOBS}?state=ready{query}").status_code == 200
        # A page of 50 jobs, or a look at 500; each of 144 ranges is entered twice, and again for its priority.
        assert plans.rows_read["find-jobs"] <= (4_500 if query.startswith("&q") else 1_500)

    @pytest.mark.parametrize("sort", ["priority", "-priority", "time", "-time"])
    @pytest.mark.parametrize("limit", [1, 50, 997])
    def test_page__has_the_first_jobs_of_all_ranges(self, ranges: None, sort: str, limit: int) -> None:
        ready = Criteria(state=State.READY)
        order = sorts.sort_of(ready, sort)
        assert order is not None
        with connection.cursor() as cursor:
            cursor.execute(
                f'select id from "{SCHEMA}"._private_jobs as job order by {order.by("job")} limit %s', [2 * limit]
            )
            expected = [job_id for (job_id,) in cursor.fetchall()]
            first = search.find(cursor, ready, schema=SCHEMA, limit=limit, order=order)
            second = search.find(cursor, ready, schema=SCHEMA, limit=limit, order=order, after=first.next_token)
        assert [*first.ids, *second.ids] == expected


# The overview counts up to five thousand in each state; the others up to a thousand in each of five.
MOST_READ = {
    "count-jobs": 31_000,
    "count-list": 31_000,
    "task-backlog": 1_300,
    "error-groups": 31_000,
    "busiest-queues": 25_000,
    "queues": 25_000,
    # Up to 50 jobs of each of a thousand queues, to show the fullest first.
    "active-queues": 50_000,
    # A bounded look reads 5,000 jobs along an index, and the row of each.
    "find-jobs": 10_400,
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
        for query in ("", "?q=tenant", "?state=failing", "?sort=last&page=40"):
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
        page = admin_page.get(pages.SCHEDULES, {"source": "database"}).context
        assert (len(page["rows"]), page["place"], page["tabs"][0].count) == (50, "Page 1 of 40", "2,000")
        last = admin_page.get(pages.SCHEDULES, {"source": "database", "page": "40"}).context
        assert last["rows"][-1].name == "tenant 02000"
        assert (last["next_url"], bool(last["previous_url"])) == ("", True)


def _rows_read(client: Client, url: str) -> dict[str, int]:
    """Return how many rows of each table the statements of a page read."""
    plans = Plans()
    with connection.execute_wrapper(plans):
        assert client.get(url).status_code == 200
    return plans.rows_by_table
