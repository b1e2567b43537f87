"""The list of schedules."""

from __future__ import annotations

import re
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from django.contrib.admin import AdminSite
from django.contrib.auth.models import User
from django.test import Client, RequestFactory

from django_graphile_worker.admin.schedules.schedule_admin import ScheduleAdmin
from django_graphile_worker.models import Schedule
from tests.integration.admin.conftest import MakeClient
from tests.integration.admin.test_security import forbidden_markup
from tests.support import admin_pages as pages
from tests.support.admin_pages import body, text
from tests.support.factories import make_failed_job, make_job
from tests.support.operating import execute
from tests.support.schedule_rows import make_run, make_schedule

pytestmark = pytest.mark.django_db

HOUR, DAY = timedelta(hours=1), timedelta(days=1)


def now() -> datetime:
    return datetime.now(UTC)


def names(client: Client, **query: str) -> list[str]:
    return [row.name for row in pages.rows(client.get(pages.SCHEDULES, {"source": "database", **query}))]


def test_rows__say_in_words_what_each_does(admin_page: Client) -> None:
    make_schedule("Morning report", cron="0 9 * * 1-5", time_zone="Europe/Berlin", description="For Ada")
    make_schedule("Poll", interval="10 seconds", queue_name="slow")
    shown = text(admin_page.get(pages.SCHEDULES))
    assert re.search(r"Morning report .*For Ada Every weekday at 09:00 \(Europe/Berlin\) 0 9 \* \* 1-5", shown)
    assert "queue slow Every 10 seconds 10s" in shown


class TestFilters:
    @pytest.fixture(autouse=True)
    def schedules(self) -> None:
        failed = make_failed_job("send_receipt", error="KeyError: x")
        failing = make_schedule("failing", last_job_id=failed)
        make_run(failing, job_id=failed)
        make_schedule("plain", description="Bills of Äpfel")
        make_schedule("paused", paused_until=now() + DAY)
        make_schedule("was paused", paused_until=now() - DAY)
        make_schedule("disabled", is_enabled=False)
        make_schedule("ended", run_at=now() - DAY, next_at="infinity")
        make_schedule("missed", last_missed_at=now() - HOUR)
        make_schedule("missed long ago", last_missed_at=now() - 2 * DAY)
        make_schedule("late", next_at=now() - timedelta(minutes=5))
        make_schedule("new", next_at="-infinity")
        make_schedule("orphan", "no_such_task")

    def test_states__have_lists_and_numbers(self, admin_page: Client) -> None:
        active = ["failing", "late", "missed", "missed long ago", "new", "orphan", "plain", "was paused"]
        tabs = admin_page.get(pages.SCHEDULES, {"source": "database"}).context["cl"].tabs()
        for state, expected in {
            "active": active,
            "paused": ["paused"],
            "disabled": ["disabled"],
            "ended": ["ended"],
            "failing": ["failing"],
            "missed": ["missed"],
            "late": ["late"],
            "unknown_task": ["orphan"],
        }.items():
            assert names(admin_page, state=state) == expected, state
            (tab,) = [tab for tab in tabs if f"state={state}" in tab["url"]]
            assert tab["count"] == str(len(expected)), state

    def test_badges(self, admin_page: Client) -> None:
        page = admin_page.get(pages.SCHEDULES, {"source": "database"})
        rows = pages.rows(page)
        found = {row.name: [badge.text for badge in row.badges] for row in rows}
        assert {name: badges for name, badges in found.items() if badges} == {
            "failing": ["failing"],
            "paused": ["paused"],
            "disabled": ["disabled"],
            "ended": ["ended"],
            "missed": ["missed"],
            "late": ["late"],
            "orphan": ["unknown task"],
        }
        # The rows of these are marked by a style.
        assert body(page).count("gw-unknown-task") == 1

    def test_search__finds_all_words_in_name_task_and_description(self, admin_page: Client) -> None:
        assert names(admin_page, q="MISSED ago") == ["missed long ago"]
        assert names(admin_page, q="äpfel send_rec") == ["plain"]
        assert names(admin_page, q="plain %") == []
        assert names(admin_page, task="no_such_task") == ["orphan"]
        assert names(admin_page, task="no_such") == []
        assert "No schedule matches." in text(admin_page.get(pages.SCHEDULES, {"q": "nothing"}))

    def test_source__is_the_code_or_the_database(self, admin_page: Client) -> None:
        assert [row.name for row in pages.rows(admin_page.get(pages.SCHEDULES, {"source": "code"}))] == ["count_orders"]
        assert "count_orders" not in names(admin_page)
        both = [row.name for row in pages.rows(admin_page.get(pages.SCHEDULES))]
        assert both == sorted(both)
        assert {"count_orders", "plain"} <= set(both)

    def test_source__of_a_schedule_that_workers_have_written_is_the_code(self, admin_page: Client) -> None:
        execute("update {schema}._private_schedules set is_from_code = true where name = 'plain'")
        rows = pages.rows(admin_page.get(pages.SCHEDULES, {"source": "code"}))
        assert [(row.name, row.is_in_code) for row in rows] == [("count_orders", True), ("plain", True)]
        assert "plain" not in names(admin_page)

    def test_order__is_reversed_by_a_second_click(self, admin_page: Client) -> None:
        execute("update {schema}._private_schedules set last_tick = now() - id * interval '1 minute'")
        execute("update {schema}._private_schedules set next_at = now() + id * interval '1 minute'")
        by_next = names(admin_page, o="3")
        assert (by_next[0], by_next[-1]) == ("failing", "disabled")
        assert names(admin_page, o="-3") == by_next[::-1]
        by_last = names(admin_page, o="4")
        assert (by_last[0], by_last[-1]) == ("orphan", "failing")
        assert names(admin_page, o="-4") == by_last[::-1]
        assert names(admin_page, o="-1") == names(admin_page)[::-1]
        (header,) = [
            each for each in admin_page.get(pages.SCHEDULES, {"o": "3"}).context["headers"] if each.get("direction")
        ]
        assert (header["direction"], "o=-3" in header["url"]) == ("ascending", True)

    def test_addresses_with_nonsense__show_a_list(self, admin_page: Client) -> None:
        for query in ("p=-1&state=x&source=x", "p=99999", "p=x&task=%00"):
            assert admin_page.get(f"{pages.SCHEDULES}?{query}").status_code == 200, query


class TestNextTimes:
    def test_clock_changes__are_marked(self, admin_page: Client) -> None:
        # From this date on, five Sundays include the end or the beginning of summer time in Berlin.
        make_schedule("weekly", cron="0 9 * * 0", time_zone="Europe/Berlin", starts_at="2999-03-20 00:00+00")
        (row,) = pages.rows(admin_page.get(pages.SCHEDULES, {"q": "weekly"}))
        assert len(row.next_times) == 5
        marks = [time.clock_change for time in row.next_times]
        assert "after the clocks go forward by 1 h" in marks
        assert len([mark for mark in marks if mark]) == 1
        index = marks.index("after the clocks go forward by 1 h")
        assert "8 a.m. UTC" in row.next_times[index - 1].exact
        assert "7 a.m. UTC (9 a.m. CEST)" in row.next_times[index].exact

    def test_pause__is_left_out(self, admin_page: Client) -> None:
        make_schedule("hourly", cron="0 * * * *", paused_until="2999-03-20 00:30+00")
        (row,) = pages.rows(admin_page.get(pages.SCHEDULES, {"q": "hourly"}))
        assert row.next_times[0].exact == "March 20, 2999, 1 a.m. UTC"

    def test_definition_that_is_not_valid__does_not_break_the_list(self, admin_page: Client) -> None:
        odd = [{"cron": "every now and then"}, {"time_zone": "Mars/Base"}, {"cron": ""}, {"cron": "0 0 31 2 *"}]
        for number, values in enumerate(odd):
            make_schedule(f"odd {number}", **values)
        rows = pages.rows(admin_page.get(pages.SCHEDULES, {"q": "odd"}))
        assert [row.next_times for row in rows] == [()] * 4
        assert [[badge.text for badge in row.badges] for row in rows[:3]] == [["not valid"]] * 3


class TestRuns:
    def test_strip__has_a_shape_and_a_word_for_each_outcome(self, admin_page: Client) -> None:
        schedule = make_schedule("nightly")
        make_run(schedule, kind="missed", minutes_ago=60, number=3)
        make_run(schedule, kind="overlap", minutes_ago=50)
        make_run(schedule, kind="unknown_task", minutes_ago=45)
        make_run(schedule, job_id=999_999_999, minutes_ago=40)
        make_run(schedule, job_id=make_failed_job("send_receipt", error="KeyError: x"), minutes_ago=30)
        running = make_job("send_receipt", locked_by="w", locked_at=now() - timedelta(seconds=7), attempts=1)
        make_run(schedule, job_id=running, kind="late", minutes_ago=20)
        make_run(schedule, job_id=make_job("send_receipt"), kind="by_hand", run_by="maria", minutes_ago=1)
        page = admin_page.get(pages.SCHEDULES)
        (row,) = [row for row in pages.rows(page) if row.name == "nightly"]
        assert [run.outcome for run in row.strip.runs] == [
            "Waiting", "Running", "Failed", "Not recorded", "Unknown task", "Skipped", "Missed",
        ]  # fmt: skip
        assert [run.notes for run in row.strip.runs] == [
            "run now by maria", "late", "", "", "", "the last run was not over", "3 times",
        ]  # fmt: skip
        assert "7 runs" in row.strip.summary
        assert row.strip.image.count("<g class=") == 7
        assert row.strip.runs[1].duration.startswith(("6", "7", "8", "9", "1"))
        # The page of a job that nothing is known about would be an error.
        assert [bool(run.job_url) for run in row.strip.runs] == [True, True, True, False, False, False, False]

    def test_user_who_sees_some_jobs_only__sees_runs_of_those_jobs(self, admin_page: Client, settings: Any) -> None:
        settings.ROOT_URLCONF = "tests.integration.admin.restricted_site"
        schedule = make_schedule("nightly")
        mine, other = make_failed_job("mine%1", error="x"), make_failed_job("other", error="x")
        execute("update {schema}._private_schedules set last_job_id = %s where id = %s", [other, schedule])
        for job in (mine, other):
            make_run(schedule, job_id=job)
        page = admin_page.get("/restricted/graphile_worker/schedule/", {"source": "database"})
        (row,) = pages.rows(page)
        assert [run.job for run in row.strip.runs] == [f"#{mine}"]
        assert row.badges == []
        assert not [tab for tab in page.context["cl"].tabs() if "failing" in tab["url"]]


class TestRestrictedSchedules:
    def test_get_queryset__restricts_list_counts_and_actions(self, db: None) -> None:
        class OwnSchedules(ScheduleAdmin):
            def get_queryset(self, request: Any) -> Any:
                return super().get_queryset(request).filter(name__startswith="100%")

        make_schedule("100% mine", "refresh_search_index")
        other = make_schedule("other", "refresh_search_index", description="hidden")
        page = OwnSchedules(Schedule, AdminSite(name="admin"))
        reading: Any = RequestFactory().get(pages.SCHEDULES, {"source": "database"})
        reading.user = User.objects.create_superuser("root")
        context = page.changelist_view(reading).context_data
        assert [row.name for row in context["cl"].result_list] == ["100% mine"]
        assert context["cl"].tabs()[0]["count"] == "1"
        sent = {"action": "disable", "select_across": "1", "_selected_action": str(other), "index": "0"}
        request: Any = RequestFactory().post(pages.SCHEDULES, sent)
        request.user, request._dont_enforce_csrf_checks = User.objects.get(), True
        request._messages = Messages()
        page.changelist_view(request)
        assert [*Schedule.objects.filter(is_enabled=True).values_list("name", flat=True)] == ["other"]

    def test_get_queryset__may_return_rows_that_postgresql_cannot_lock(
        self, admin_page: Client, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        mine, other = (make_schedule(name, "refresh_search_index") for name in ("mine", "other"))
        visible = Schedule.objects.filter(name="mine").distinct()
        monkeypatch.setattr(ScheduleAdmin, "get_queryset", lambda page, request: visible.all())
        sent = {"action": "disable", "_selected_action": [mine, other], "index": "0", "confirmed": "1"}
        admin_page.post(pages.SCHEDULES, sent)
        assert [*Schedule.objects.filter(is_enabled=True).values_list("name", flat=True)] == ["other"]


class Messages(list[Any]):
    """The messages of a request without middleware."""

    def add(self, *arguments: Any) -> None:
        self.append(arguments)


HOSTILE = [
    "<script>alert(1)</script>",
    "\u202egnihton\u202c <b>x</b>",
    '"><img src=x onerror=alert(1)>',
    "{% now %} {{ 7|add:7 }} %s %(name)s {0} {name}",
    "'); drop table x; --",
]


def test_no_text__becomes_markup(admin_page: Client) -> None:
    for hostile in HOSTILE:
        schedule = make_schedule(hostile, hostile[:120], description=hostile, queue_name=hostile[:120])
        make_run(schedule, kind="by_hand", run_by=hostile, job_id=make_job(hostile[:120]))
    text_of_all = " ".join(HOSTILE)
    own = make_schedule(text_of_all, "refresh_search_index", description=text_of_all)
    responses = [
        admin_page.get(pages.SCHEDULES),
        admin_page.get(pages.SCHEDULES, {"q": text_of_all, "task": "refresh_search_index", "source": HOSTILE[0]}),
        admin_page.get(pages.SCHEDULES, headers={"X-Graphile-Worker-Refresh": "none"}),
        *(
            admin_page.post(pages.SCHEDULES, {"row": f"{action} schedule {own}"}, follow=True)
            for action in ("delete_selected", "pause", "duplicate", "disable")
        ),
    ]
    for response in responses:
        assert response.status_code == 200
        assert forbidden_markup(response) == []
        assert "14{%" not in body(response)
    assert [row.name for row in pages.rows(responses[1])] == [text_of_all]
    assert responses[0].content.decode().count("<bdi>&lt;script&gt;") >= 4


def test_viewer__sees_no_buttons(client_with: MakeClient) -> None:
    schedule = make_schedule("nightly", "refresh_search_index")
    client = client_with()
    page = client.get(pages.SCHEDULES)
    content = body(page).split('id="content-main"')[1]
    assert "csrfmiddlewaretoken" not in content
    assert 'name="row"' not in content
    assert f"{pages.SCHEDULES}{schedule}/change/" in content
