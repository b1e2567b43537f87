"""The errors page."""

from __future__ import annotations

from django.db import connection
from django.test import Client

from django_graphile_worker.models import Job
from django_graphile_worker.sql import recovery
from django_graphile_worker.sql.inspection import error_groups
from tests.support import admin_pages as pages
from tests.support.admin_pages import act_on_all, body, make_worker, messages, text
from tests.support.factories import make_failed_job, make_job, minutes_ago
from tests.support.operating import execute

FAILED = "KeyError: 'y'\n\nNo printer.\n\nNot tried again after attempt 1 of 25."
PATH = "django_graphile_worker.exceptions.PermanentFailure"


def test_groups_by_task_and_exception(admin_page: Client) -> None:
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
    assert len(listed.context["rows"]) == 4


def test_first_and_last_seen_are_when_jobs_failed(admin_page: Client, worker_schema: str) -> None:
    """The times depend neither on the next attempts nor on how many jobs are counted."""
    times = [minutes_ago(minutes) for minutes in range(90, 10, -10)]
    ids = [
        make_job("send", attempts=3, last_error=f"KeyError: {number}", run_at=minutes_ago(number - 99), updated_at=at)
        for number, at in enumerate(times)
    ]
    first = minutes_ago(100)
    make_failed_job("send", error="KeyError: permanently", updated_at=first, run_at=minutes_ago(-9000))
    with connection.cursor() as cursor:
        (group,) = error_groups.error_groups(cursor, schema=worker_schema, most=6)
    assert group.is_more
    assert group.first_seen == first
    assert (group.last_seen, group.latest_id) == (times[-1], ids[-1])
    assert group.latest_error == "KeyError: 7"
    listed = admin_page.get(pages.JOBS, {"q": "exception:KeyError"}).context["rows"]
    assert [line.id for line in listed][:8] == ids[::-1]


def test_running_jobs_are_in_no_group(admin_page: Client) -> None:
    make_job("send", attempts=2, last_error="ValueError: no", locked_by="worker")
    assert admin_page.get(pages.ERRORS).context["groups"] == []


def test_a_whole_group_is_retried(admin_page: Client) -> None:
    failed = make_failed_job("send", error="KeyError: 'x'")
    retried = failed, make_job("send", attempts=1, last_error="KeyError: 'y'", run_at=minutes_ago(-60))
    other = make_failed_job("send", error="ValueError: z")
    (group,) = [each for each in admin_page.get(pages.ERRORS).context["groups"] if each["name"] == "KeyError"]
    fields = {"state": "failing", "confirmed": "1", "back": pages.ERRORS}
    response = act_on_all(admin_page, "retry", group["query"], **fields)
    assert messages(response) == [f"2 jobs will be retried now. #{retried[0]} #{retried[1]} Undo…"]
    assert response.request["PATH_INFO"] == pages.ERRORS
    assert set(Job.objects.filter(attempts__gt=0).values_list("pk", flat=True)) == {other}


def test_a_group_that_has_failed_permanently_cannot_be_failed(admin_page: Client) -> None:
    make_failed_job("send", error="KeyError: 'x'")
    assert "Fail all…" not in text(admin_page.get(pages.ERRORS))
    make_job("send", attempts=1, last_error="KeyError: 'y'", run_at=minutes_ago(-60))
    assert "Retry all… Fail all… Delete all…" in text(admin_page.get(pages.ERRORS))
    given = {"state": "failing", "reason": "No printer."}
    asked = act_on_all(admin_page, "fail", "task:send exception:KeyError", **given)
    assert asked.context["title"] == "Fail 1 job?"
    response = act_on_all(admin_page, "fail", "task:send exception:KeyError", **given, confirmed="1")
    assert messages(response)[1] == "1 job was skipped: its state is “Failed”."
    errors = set(Job.objects.values_list("last_error", flat=True))
    assert errors == {"KeyError: 'x'", FAILED}, "tracebacks are kept"


def test_a_group_shows_its_name_once(admin_page: Client) -> None:
    make_failed_job("charge", error=f"{PATH}: The card was stolen.")
    page = admin_page.get(pages.ERRORS)
    (group,) = page.context["groups"]
    assert (group["name"], group["message"]) == ("PermanentFailure", "The card was stolen.")
    assert f'title="{PATH}"' in body(page)
    assert len(admin_page.get(group["jobs_url"]).context["rows"]) == 1


def test_job_that_kills_its_workers__is_one_group_and_is_named(admin_page: Client, worker_schema: str) -> None:
    """Whatever workers died: on the page of errors, in the events, and in the alarm."""
    poison = make_job("convert", max_attempts=3)
    neighbour = make_job("send")
    for death in range(6):
        worker = make_worker(f"django-worker-{death:02d}ab{death}cdef", silent=600, host=f"web-{death}")
        execute("update {schema}._private_jobs set locked_by = null, locked_at = null where id = %s", [neighbour])
        held = [poison, *([neighbour] if death == 4 else [])]
        execute(
            "update {schema}._private_jobs set locked_by = %s || '/1', locked_at = now(), attempts = attempts + 1"
            " where id = any (%s) and attempts < max_attempts",
            [worker, held],
        )
        with connection.cursor() as cursor:
            recovery.recover(cursor, schema=worker_schema, timeout=60.0)
        if death == 1:
            alarm = body(admin_page.get(pages.OVERVIEW))
            assert "has lost a worker before: it may be the cause." in alarm
            assert pages.job_url(poison) in alarm
    other = make_job("convert", attempts=1, locked_by="django-worker-ffff/1")
    make_worker("django-worker-ffff", silent=600)
    with connection.cursor() as cursor:
        recovery.recover(cursor, schema=worker_schema, timeout=60.0)
    execute("update {schema}._private_jobs set attempts = 1 where id = %s", [other])
    groups = [group for group in admin_page.get(pages.ERRORS).context["groups"] if group["task"] == "convert"]
    assert [(group["name"], group["number"]) for group in groups] == [("WorkerDiedError", "2")]
    assert len(admin_page.get(groups[0]["jobs_url"]).context["rows"]) == 2
    events = body(admin_page.get(pages.EVENTS))
    assert f'<a href="{pages.job_url(poison)}"><bdi>#{poison}</bdi></a> has no attempt left and failed.' in events
    assert pages.job_url(neighbour) not in events
