"""Every page shows what it promises, in its place, and stands whatever is in the table."""

from __future__ import annotations

import json
import re
from datetime import timedelta
from typing import Any

import pytest
from django.db import connection
from django.test import Client

from django_graphile_worker.admin import databases
from django_graphile_worker.admin.formatting import NOTHING
from django_graphile_worker.models import Job
from django_graphile_worker.sql import paused_crontabs, statistics
from django_graphile_worker.sql.inspection import error_groups
from django_graphile_worker.sql.statistics import BUCKETS, Row
from tests.integration.admin import pages
from tests.integration.admin.pages import body, job_url, text
from tests.support.factories import TOO_DEEP, make_failed_job, make_job, make_queue, make_task, minutes_ago


def execute(statement: str, schema: str, *parameters: Any) -> None:
    with connection.cursor() as cursor:
        cursor.execute(statement.replace("{schema}", f'"{schema}"'), parameters)


def make_worker(schema: str, worker_id: str, *, silent: float = 1.0, **metadata: Any) -> str:
    execute(
        "insert into {schema}._private_workers (id, last_heartbeat_at, metadata)"
        " values (%s, now() - %s * interval '1 second', %s)",
        schema,
        worker_id,
        silent,
        json.dumps(metadata),
    )
    return worker_id


def record(schema: str, task: str, **counts: Any) -> None:
    import time

    histogram = [0] * BUCKETS
    histogram[20] = counts.get("succeeded", 0)
    defaults = {"succeeded": 0, "failed": 0, "permanently_failed": 0, "interrupted": 0}
    row = Row(
        started_at=int(time.time()) // 60 * 60,
        task_identifier=task,
        duration_seconds=1.0,
        wait_seconds=1.0,
        durations=histogram,
        waits=histogram,
        **(defaults | counts),
    )
    with connection.cursor() as cursor:
        statistics.record(cursor, [row], schema=schema)


@pytest.mark.parametrize("url", pages.ALL_PAGES)
def test_every_page_opens_on_an_empty_queue(admin_page: Client, url: str) -> None:
    assert admin_page.get(url).status_code == 200


def test_the_overview_is_the_first_page_in_the_index(admin_page: Client) -> None:
    found = re.findall(r"<tr class=\"model-(\w+)", body(admin_page.get("/admin/graphile_worker/")))
    assert found == ["overview", "errorgroup", "jobqueue", "job", "recurringtask", "worker"]


class TestOverview:
    def test_tiles_count_each_job_once(self, admin_page: Client, worker_schema: str) -> None:
        make_job("send", run_at=minutes_ago(90))
        make_job("send", run_at=minutes_ago(-5))
        make_job("send", run_at=minutes_ago(-5), attempts=2, last_error="no")
        make_job("send", locked_by="worker")
        make_failed_job("send")
        make_worker(worker_schema, "django-worker-1", tasks=["send"])
        shown = text(admin_page.get(pages.OVERVIEW))
        expected = "1 Ready 1 h Oldest ready job 1 Scheduled 1 Running 1 Retrying 1 Permanently failed 1 Workers alive"
        assert expected in shown

    def test_charts_and_tables_tell_what_workers_recorded(self, admin_page: Client, worker_schema: str) -> None:
        make_queue("eu")
        make_job("send", queue_name="eu")
        record(worker_schema, "send", succeeded=1234, failed=5, permanently_failed=1)
        for span in ("hour", "day", "week"):
            shown = text(admin_page.get(pages.OVERVIEW, {"span": span}))
            assert "1,234 jobs succeeded" in shown
            assert "6 attempts failed" in shown
            assert "p50" in shown
        assert "send 1" in shown
        assert "eu 1" in shown

    def test_charts_of_one_task_leave_the_others_out(self, admin_page: Client, worker_schema: str) -> None:
        record(worker_schema, "send", succeeded=10)
        record(worker_schema, "charge", succeeded=7)
        assert "7 jobs succeeded" in text(admin_page.get(pages.OVERVIEW, {"task": "charge"}))

    @pytest.mark.parametrize(
        ("metadata", "silent", "warning"),
        [
            (None, 0, "Jobs are ready, and no worker is running."),
            ({"tasks": ["other"]}, 1, "No worker knows the tasks of ready jobs: send."),
            ({"tasks": ["send"]}, 300, "Stopped beating: django-worker-1."),
            ({"tasks": ["send"], "is_listening": False}, 1, "Not listening, only polling: django-worker-1."),
        ],
    )
    def test_warnings_name_the_cause(
        self, admin_page: Client, worker_schema: str, metadata: dict[str, Any] | None, silent: float, warning: str
    ) -> None:
        make_job("send")
        if metadata is not None:
            make_worker(worker_schema, "django-worker-1", silent=silent, **metadata)
        assert warning in text(admin_page.get(pages.OVERVIEW))

    def test_an_old_lock_of_a_stranger_is_told(self, admin_page: Client) -> None:
        make_job("send", locked_by="node-worker", locked_at=minutes_ago(90))
        assert "node-worker has held a lock for 1 h 30 min" in text(admin_page.get(pages.OVERVIEW))

    def test_all_is_well_without_a_warning(self, admin_page: Client, worker_schema: str) -> None:
        make_job("send")
        make_worker(worker_schema, "django-worker-1", tasks=["send"], is_listening=True)
        alarms = admin_page.get(pages.OVERVIEW).context["alarms"]
        # What other tests do to the same database is not what is tested here.
        ours = [each for each in alarms if "dead rows" not in each.cause and "has been open" not in each.cause]
        assert ours == []

    def test_many_tasks_are_not_read_to_show_the_busiest(self, admin_page: Client, worker_schema: str) -> None:
        """Every minute of every task was read, up to 50,000 rows, to show fifty tasks."""
        execute(
            "insert into {schema}._private_tasks (identifier) select 'task_' || n from generate_series(1, 300) as n",
            worker_schema,
        )
        execute(
            "insert into {schema}._private_statistics"
            " select period, to_timestamp(floor(extract(epoch from now()) / period) * period - period * back),"
            " 'task_' || number, number, 0, 0, 0, 1, 1, array_fill(1, array[48]), array_fill(1, array[48])"
            " from (values (60), (600)) as resolution (period), generate_series(0, 59) as back,"
            " generate_series(1, 300) as number",
            worker_schema,
        )
        for number in range(1, 301, 50):
            make_job(f"task_{number}")
        read: list[int] = []

        def count(run: Any, statement: str, parameters: Any, many: bool, context: dict[str, Any]) -> Any:
            result = run(statement, parameters, many, context)
            read.append(max(context["cursor"].rowcount, 0))
            return result

        with connection.execute_wrapper(count):
            tasks = admin_page.get(pages.OVERVIEW).context["tasks"]
        assert [(line.identifier, line.runs) for line in tasks[:2]] == [("task_300", "18,000"), ("task_299", "17,940")]
        assert len(tasks) == 50
        assert len(read) <= 16
        assert sum(read) < 1000

    def test_a_task_that_waits_is_shown_beside_those_that_ran(self, admin_page: Client, worker_schema: str) -> None:
        record(worker_schema, "send", succeeded=3)
        make_job("waits", run_at=minutes_ago(90))
        make_job("waits", run_at=minutes_ago(5), priority=-1)
        make_job("waits", run_at=minutes_ago(-5))
        lines = admin_page.get(pages.OVERVIEW).context["tasks"]
        assert [(line.identifier, line.runs, line.ready, line.oldest) for line in lines] == [
            ("send", "3", "0", NOTHING),
            ("waits", "0", "2", "1 h 30 min"),
        ]


TRACEBACK = """ValueError: no

Traceback (most recent call last):
  File "/srv/shop/tasks.py", line 3, in send
    raise ValueError("no")
  File "/x/site-packages/lib.py", line 5, in f
    g()
ValueError: no"""


class TestDetail:
    def test_the_list_tells_when_a_job_failed_for_good_and_not_when_it_would_have_run(self, admin_page: Client) -> None:
        make_failed_job("send", run_at=minutes_ago(-340), updated_at=minutes_ago(17))
        for state in ("all", "failed"):
            (line,) = admin_page.get(pages.JOBS, {"state": state}).context["lines"]
            assert "17 min" in line.when
            assert "ago" in line.when

    def test_tells_when_a_job_failed(self, admin_page: Client) -> None:
        """As our workers wrote it down; what another one failed can only be reckoned from its next attempt."""
        created = minutes_ago(90)
        columns: dict[str, Any] = {"attempts": 2, "last_error": "no", "run_at": minutes_ago(-60)}
        columns |= {"created_at": created}
        ours = make_job("send", **columns, updated_at=minutes_ago(30))
        theirs = make_job("send", **columns, updated_at=created)
        (event,) = [event for event in _timeline(admin_page, ours) if event.label == "2 attempts failed"]
        assert (event.detail, event.moment) == ("the last one then", Job.objects.get(pk=ours).updated_at)
        (event,) = [event for event in _timeline(admin_page, theirs) if event.label == "2 attempts failed"]
        assert event.detail == "the last one about then"

    def test_shows_everything_about_a_job(self, admin_page: Client) -> None:
        job_id = make_job(
            "send",
            {"user": {"name": "Ada", "ids": [1, 2]}},
            queue_name="eu",
            key="ada-1",
            flags={"slow": True},
            priority=7,
            attempts=2,
            max_attempts=9,
            last_error=TRACEBACK,
            run_at=minutes_ago(-10),
        )
        shown = text(admin_page.get(job_url(job_id)))
        for expected in ("send #", "Retrying", "2 of 9", "ada-1", "slow", "eu", '"Ada"', "ValueError: no"):
            assert expected in shown
        assert "/srv/shop/tasks.py :3 send" in shown
        assert "1 library frame" in shown
        assert re.search("Next attempt in (9|10) min", shown)
        assert "job_key='ada-1'" in shown
        assert "payload => " in shown

    def test_tells_what_its_queue_waits_for(self, admin_page: Client) -> None:
        running = make_job("charge", queue_name="eu", locked_by="worker-1", locked_at=minutes_ago(2))
        make_queue("eu", locked_by="worker-1", locked_at=minutes_ago(2))
        first = make_job("send", queue_name="eu", run_at=minutes_ago(5))
        second = make_job("send", queue_name="eu", run_at=minutes_ago(1))
        shown = text(admin_page.get(job_url(second)))
        assert "worker-1 has the queue since" in shown
        assert f"charge #{running}" in shown
        assert "Ahead of it in the queue 1" in shown
        assert "Ahead of it" not in text(admin_page.get(job_url(first)))

    def test_tells_who_runs_it_and_offers_nothing(self, admin_page: Client, worker_schema: str) -> None:
        worker = make_worker(worker_schema, "django-worker-7", silent=3)
        shown = admin_page.get(job_url(make_job("send", locked_by=worker)))
        assert "django-worker-7 (last heard of" in text(shown)
        assert 'name="action"' not in body(shown)

    def test_a_job_that_is_gone_is_told_so(self, admin_page: Client) -> None:
        response = admin_page.get(job_url(999_999))
        assert response.status_code == 404
        assert "There is no job 999999" in text(response)

    @pytest.mark.parametrize("object_id", ["abc", "-1", "1.5", "9" * 40, "٣"])
    def test_what_is_no_id_is_not_found(self, admin_page: Client, object_id: str) -> None:
        assert admin_page.get(f"{pages.JOBS}{object_id}/change/").status_code == 404

    def test_ids_beyond_what_javascript_can_count_are_exact(self, admin_page: Client) -> None:
        for job_id in (2**53 + 1, 2**63 - 1):
            make_job_with_id(job_id)
            assert f"#{job_id}" in text(admin_page.get(job_url(job_id)))
            listed = body(admin_page.get(pages.JOBS, {"q": f"id:{job_id}"}))
            assert f'href="{job_url(job_id)}"' in listed
            assert f'value="{job_id}"' in listed


def make_job_with_id(job_id: int) -> None:
    from django.conf import settings

    execute(
        "insert into {schema}._private_jobs (id, task_id) overriding system value values (%s, %s)",
        settings.GRAPHILE_WORKER["SCHEMA"],
        job_id,
        make_task("send"),
    )


ODD_ROWS: dict[str, tuple[str, Any]] = {
    "infinite run_at": ("run_at = 'infinity'", "never (infinity)"),
    "past beyond all": ("run_at = '-infinity', created_at = '-infinity'", "always (-infinity)"),
    "far year": ("run_at = '200000-01-01'", "never (infinity)"),
    "before Christ": ("created_at = '0044-03-15 BC'", "always (-infinity)"),
    "undecodable number": ("payload = ('[' || repeat('9', 6000) || ']')::json", "Python cannot read this payload"),
    "too deep": (f"payload = '{TOO_DEEP}'::json", "Python cannot read this payload"),
    "nul in payload": ('payload = \'{"a": "\\u0000"}\'::json', '"a"'),
    "lone surrogate": ('payload = \'{"a": "\\ud800"}\'::json', '"a"'),
    "scalar payload": ("payload = '42'::json", "42"),
    "null payload": ("payload = 'null'::json", "null"),
    "large payload": ("payload = to_json(repeat('x', 300000))", "Too large to be shown whole"),
    "flags that are no object": ("flags = '[1, \"a\"]'::jsonb", "1, a"),
    "no such task": ("task_id = 2000000000", "unknown task"),
    "no such queue": ("job_queue_id = 2000000000", "#"),
    "huge error": ("last_error = repeat('x', 300000), attempts = 3", "xxx"),
    "error without text": ("last_error = '', attempts = 25", "Permanently failed"),
}


@pytest.mark.parametrize("name", ODD_ROWS)
def test_odd_rows_are_shown_as_they_are_and_break_no_page(admin_page: Client, worker_schema: str, name: str) -> None:
    change, expected = ODD_ROWS[name]
    job_id = make_job("send")
    execute(f"update {{schema}}._private_jobs set {change.replace('%', '%%')} where id = %s", worker_schema, job_id)
    detail = admin_page.get(job_url(job_id))
    assert detail.status_code == 200
    assert expected in text(detail)
    assert len(detail.content) < 700_000
    for state in ("all", "ready", "scheduled", "running", "retrying", "failed"):
        listed = admin_page.get(pages.JOBS, {"state": state})
        assert listed.status_code == 200
        assert len(listed.content) < 60_000
    for url in pages.ALL_PAGES:
        assert admin_page.get(url).status_code == 200
    assert admin_page.get(pages.ADD, {"from": job_id}).status_code in (200, 404)


class TestQueues:
    def test_shows_depth_holder_and_running_job(self, admin_page: Client) -> None:
        running = make_job("charge", queue_name="eu", locked_by="worker-1", locked_at=minutes_ago(2))
        make_queue("eu", locked_by="worker-1", locked_at=minutes_ago(2))
        for _ in range(3):
            make_job("send", queue_name="eu", run_at=minutes_ago(30))
        make_queue("us")
        shown = text(admin_page.get(pages.QUEUES))
        assert "eu 3 30 min" in shown
        assert "worker-1 2 min" in shown
        assert f"charge #{running}" in shown
        assert "us 0" in shown
        assert "us 0" not in text(admin_page.get(pages.QUEUES, {"held": "1"}))
        assert "eu 3" not in text(admin_page.get(pages.QUEUES, {"q": "US"}))

    def test_pages_by_name(self, admin_page: Client) -> None:
        for number in range(60):
            make_queue(f"queue {number:02}")
        first = admin_page.get(pages.QUEUES)
        assert "queue 49" in text(first)
        assert "queue 50" not in text(first)
        second = admin_page.get(first.context["next_url"])
        assert "queue 50" in text(second)
        assert "queue 49" not in text(second)
        assert second.context["next_url"] == ""

    def test_leads_back_page_by_page(self, admin_page: Client) -> None:
        for number in range(130):
            make_queue(f"queue {number:03}")
        make_queue("another")

        def names(page: Any) -> list[str]:
            return [queue["name"] for queue in page.context["queues"]]

        there = [admin_page.get(pages.QUEUES, {"q": "Queue"})]
        while url := there[-1].context["next_url"]:
            there.append(admin_page.get(url))
        assert [len(names(page)) for page in there] == [50, 50, 30]
        back = [there[-1]]
        while url := back[-1].context["previous_url"]:
            assert url in pages.body(back[-1]).replace("&amp;", "&")
            back.append(admin_page.get(url))
        assert [names(page) for page in back] == [names(page) for page in reversed(there)]
        assert names(admin_page.get(pages.QUEUES, {"before": "queue 003"}))[0] == "another", "a whole first page"

    def test_a_page_of_which_nothing_is_left_leads_back(self, admin_page: Client) -> None:
        make_queue("eu")
        page = admin_page.get(pages.QUEUES, {"after": "zz"})
        assert "No queues here." in text(page)
        assert "eu" in text(admin_page.get(page.context["previous_url"]))


class TestWorkers:
    def test_shows_what_each_says_of_itself(self, admin_page: Client, worker_schema: str) -> None:
        make_worker(
            worker_schema,
            "django-worker-1",
            host="box",
            pid=7,
            version="1.2",
            concurrency=4,
            tasks=["send"],
            running=[{"job_id": 5, "task": "send", "started_at": 1.7e9}],
        )
        shown = text(admin_page.get(pages.WORKERS))
        for expected in ("alive", "django-worker-1", "box 7", "1.2", "1 / 4", "send #5", "1 task"):
            assert expected in shown

    @pytest.mark.parametrize(
        "metadata",
        [
            "[]",
            "null",
            '"x"',
            '{"running": 5, "tasks": {"a": 1}, "concurrency": "ten", "host": {"a": []}, "pid": null}',
            '{"running": [1, null, {"job_id": "7", "started_at": "soon"}, {"started_at": 1e300}], "concurrency": 0}',
        ],
    )
    def test_strange_metadata_breaks_nothing(self, admin_page: Client, worker_schema: str, metadata: str) -> None:
        execute("insert into {schema}._private_workers (id, metadata) values ('w', %s)", worker_schema, metadata)
        for url in (pages.WORKERS, pages.OVERVIEW, pages.ADD):
            assert admin_page.get(url).status_code == 200

    def test_holders_that_never_registered_are_shown_apart(self, admin_page: Client) -> None:
        make_job("send", locked_by="node-1", locked_at=minutes_ago(3))
        assert "Not registered, but holding" in text(admin_page.get(pages.WORKERS))


def _timeline(client: Client, job_id: int) -> list[Any]:
    return list(client.get(job_url(job_id)).context["timeline"])


class TestErrors:
    def test_groups_by_task_and_exception(self, admin_page: Client) -> None:
        for number in range(3):
            make_job("send", attempts=2, last_error=f"ValueError: order {number}\n\nTraceback…", run_at=minutes_ago(-5))
        make_failed_job("send", error="ValueError: never")
        make_failed_job("send", error="KeyError: 'x'")
        make_failed_job("charge", error="ValueError: no")
        make_failed_job("charge", error="Order 17 not found")
        make_failed_job("charge", error="Order 18 not found")
        groups = {(group["task"], group["name"]): group for group in admin_page.get(pages.ERRORS).context["groups"]}
        counts = {key: (group["number"], group["failed"], group["retrying"]) for key, group in groups.items()}
        assert counts == {
            ("send", "ValueError"): ("4", "1", "3"),
            ("send", "KeyError"): ("1", "1", "0"),
            ("charge", "ValueError"): ("1", "1", "0"),
            ("charge", "Order # not found"): ("2", "2", "0"),
        }
        listed = admin_page.get(groups["send", "ValueError"]["jobs_url"])
        assert len(listed.context["lines"]) == 4

    def test_first_and_last_seen_are_when_jobs_failed(self, admin_page: Client, worker_schema: str) -> None:
        """However far away their next attempt is, and however many more there are than are counted."""
        times = [minutes_ago(minutes) for minutes in range(90, 10, -10)]
        ids = [
            make_job(
                "send", attempts=3, last_error=f"KeyError: {number}", run_at=minutes_ago(number - 99), updated_at=at
            )
            for number, at in enumerate(times)
        ]
        make_failed_job("send", error="KeyError: for good", updated_at=minutes_ago(100), run_at=minutes_ago(-9000))
        with connection.cursor() as cursor:
            (group,) = error_groups.error_groups(cursor, schema=worker_schema, most=6)
        assert group.is_more
        assert group.first_seen == pytest.approx(minutes_ago(100), abs=timedelta(seconds=5))
        assert (group.last_seen, group.latest_id) == (times[-1], ids[-1])
        assert group.latest_error == "KeyError: 7"
        listed = admin_page.get(pages.JOBS, {"q": "exception:KeyError"}).context["lines"]
        assert [line.id for line in listed][:8] == ids[::-1]

    def test_running_jobs_are_in_no_group(self, admin_page: Client) -> None:
        make_job("send", attempts=2, last_error="ValueError: no", locked_by="worker")
        assert admin_page.get(pages.ERRORS).context["groups"] == []


class TestRecurring:
    @pytest.fixture(autouse=True)
    def crontab(self, settings: Any) -> None:
        lines = "0 4 * * 1-5 count_orders ?id=nightly&fill=2d&tz=Europe/Paris"
        settings.GRAPHILE_WORKER = {**settings.GRAPHILE_WORKER, "CRONTAB": lines}

    def test_shows_items_in_words_with_their_times(self, admin_page: Client, worker_schema: str) -> None:
        execute(
            "insert into {schema}._private_known_crontabs values"
            " ('nightly', now() - interval '9 days', now() - interval '5 hours'),"
            " ('retired', now() - interval '90 days', null)",
            worker_schema,
        )
        shown = text(admin_page.get(pages.RECURRING))
        assert re.search(r"nightly count_orders At 04:00, .*Monday to Friday \(Europe/Paris\) 0 4 \* \* 1-5", shown)
        assert "5 h ago" in shown
        assert "2 d" in shown
        assert "crontab retired last run" in shown

    def test_an_item_that_is_paused_has_no_next_run_and_keeps_its_last(
        self, admin_page: Client, worker_schema: str
    ) -> None:
        execute(
            "insert into {schema}._private_known_crontabs values"
            " ('nightly', now() - interval '9 days', now() - interval '5 hours'), ('other', now(), 'infinity')",
            worker_schema,
        )
        with connection.cursor() as cursor:
            paused_crontabs.pause(cursor, "nightly", schema=worker_schema)
        items = {item["name"]: item for item in admin_page.get(pages.RECURRING).context["items"]}
        item = items["nightly"]
        assert (item["is_paused"], item["next_runs"]) == (True, [])
        shown = text(admin_page.get(pages.RECURRING))
        assert "0 4 * * 1-5 paused 5 h ago" in shown
        assert "never (infinity)" not in shown

    def test_mistakes_are_shown(self, admin_page: Client, settings: Any) -> None:
        settings.GRAPHILE_WORKER = {**settings.GRAPHILE_WORKER, "CRONTAB": "99 * * * * count_orders"}
        shown = text(admin_page.get(pages.RECURRING))
        assert "The crontab has mistakes" in shown
        assert "99" in shown


class TestElsewhere:
    def test_a_site_of_ones_own(self, admin_page: Client, settings: Any) -> None:
        job_id = make_failed_job("send")
        settings.ROOT_URLCONF = "tests.integration.admin.own_site"
        listed = admin_page.get("/office/graphile_worker/job/")
        assert f'href="/office/graphile_worker/job/{job_id}/change/"' in body(listed)
        assert admin_page.get("/office/graphile_worker/overview/").status_code == 200
        response = admin_page.post("/office/graphile_worker/job/act/", {"action": "run", "id": job_id})
        assert response["Location"].startswith("/office/")

    @pytest.mark.django_db(databases=["default", "other"])
    def test_another_database_is_chosen_by_name_and_kept(self, admin_page: Client) -> None:
        databases.forget()
        try:
            make_job("here")
            there = make_job("there", using="other", run_at=minutes_ago(-60))
            assert "there" not in text(admin_page.get(pages.JOBS))
            listed = admin_page.get(pages.JOBS, {"database": "other"})
            assert "there" in text(listed)
            assert "database=other" in listed.context["tabs"][1]["url"]
            assert "there #" in text(admin_page.get(job_url(there), {"database": "other"}))
            response = admin_page.post(pages.ACT, {"action": "run", "id": there, "database": "other"}, follow=True)
            assert "Run now: 1 job." in text(response)
            assert "database=other" in response.request["QUERY_STRING"]
        finally:
            databases.forget()

    def test_a_database_that_is_not_there_is_never_asked(self, admin_page: Client) -> None:
        assert admin_page.get(pages.JOBS, {"database": "nope"}).status_code == 200

    def test_without_the_schema_the_page_says_what_to_run(self, admin_page: Client, settings: Any) -> None:
        settings.GRAPHILE_WORKER = {**settings.GRAPHILE_WORKER, "SCHEMA": "not_there"}
        response = admin_page.get(pages.JOBS)
        assert response.status_code == 503
        assert "manage.py migrate graphile_worker" in text(response)

    def test_a_question_that_takes_too_long_is_withdrawn(
        self, admin_page: Client, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        from django_graphile_worker.sql.inspection import search

        def forever(cursor: Any, *args: Any, **kwargs: Any) -> Any:
            cursor.execute("select pg_sleep(60)")

        monkeypatch.setattr(search, "find", forever)
        monkeypatch.setattr("django_graphile_worker.admin.databases.conf.current", _impatient)
        response = admin_page.get(pages.JOBS)
        assert response.status_code == 503
        assert "That took too long" in text(response)

    def test_reading_leaves_no_setting_behind(self, admin_page: Client) -> None:
        with connection.cursor() as cursor:
            cursor.execute("show statement_timeout")
            before = cursor.fetchone()
            admin_page.get(pages.JOBS)
            cursor.execute("show statement_timeout")
            assert cursor.fetchone() == before


def _impatient() -> Any:
    from django_graphile_worker.conf import Settings

    return Settings().replace(admin_statement_timeout=timedelta(milliseconds=200))
