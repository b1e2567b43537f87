"""The errors page."""

from __future__ import annotations

from typing import Any

from django.db import connection
from django.test import Client

from django_graphile_worker.models import Job
from django_graphile_worker.sql import recovery
from django_graphile_worker.sql.inspection import error_groups
from tests.integration.admin.conftest import MakeClient
from tests.support import admin_pages as pages
from tests.support.admin_pages import act_on_group, body, confirm, make_worker, messages, text
from tests.support.factories import make_failed_job, make_job, minutes_ago
from tests.support.operating import execute

FAILED = "KeyError: 'y'\n\nNo printer.\n\nNot tried again after attempt 1 of 25."
PATH = "django_graphile_worker.exceptions.PermanentFailure"


def groups(response: Any) -> dict[str, Any]:
    return {group["name"]: group for group in response.context["groups"]}


def tasks(group: Any) -> list[tuple[str, str]]:
    return [(task["name"], task["number"]) for task in (*group["tasks"], *group["more_tasks"])]


def make_some() -> None:
    for number in range(3):
        make_job("send", attempts=2, last_error=f"ValueError: order {number}\n\nTraceback…", run_at=minutes_ago(-5))
    make_failed_job("send", error="ValueError: never")
    make_failed_job("send", error="KeyError: 'x'")
    make_failed_job("charge", error="ValueError: no")
    make_failed_job("charge", error="Order 17 not found")
    make_failed_job("charge", error="Order 18 not found")


def test_groups_by_exception_over_all_tasks(admin_page: Client) -> None:
    make_some()
    shown = groups(admin_page.get(pages.ERRORS))
    counts = {name: (group["number"], group["failed"], group["retrying"]) for name, group in shown.items()}
    assert counts == {
        "ValueError": ("5", "2", "3"),
        "Order # not found": ("2", "2", ""),
        "KeyError": ("1", "1", ""),
    }
    assert list(counts)[:2] == ["ValueError", "Order # not found"], "the largest first"
    assert tasks(shown["ValueError"]) == [("send", "4"), ("charge", "1")]
    for url, number in (
        (shown["ValueError"]["jobs_url"], 5),
        (shown["ValueError"]["retrying_url"], 3),
        (shown["ValueError"]["tasks"][0]["jobs_url"], 4),
    ):
        assert len(admin_page.get(url).context["cl"].result_list) == number


def test_actions_of_a_group__leave_out_exceptions_whose_last_part_is_its_name(admin_page: Client) -> None:
    make_failed_job("send", error="KeyError: 'x'")
    make_failed_job("send", error="shop.KeyError: 'y'")
    for name, group in groups(admin_page.get(pages.ERRORS)).items():
        (job,) = pages.listed(admin_page.get(group["jobs_url"]))
        assert job.last_error.startswith(name)
    # Without the whole name, the last part is enough.
    act_on_group(admin_page, "delete", "exception:KeyError", confirmed="1")
    assert [*groups(admin_page.get(pages.ERRORS))] == ["shop.KeyError"]
    assert len(pages.listed(admin_page.get(pages.JOBS, {"q": "exception:KeyError"}))) == 1


def test_search__finds_exceptions_whole_and_otherwise_tasks(admin_page: Client) -> None:
    make_some()
    found = groups(admin_page.get(pages.ERRORS, {"q": "valueERR"}))
    assert {name: group["number"] for name, group in found.items()} == {"ValueError": "5"}
    found = groups(admin_page.get(pages.ERRORS, {"q": "charge"}))
    assert {name: group["number"] for name, group in found.items()} == {"ValueError": "1", "Order # not found": "2"}
    # The actions are about what the row counts, too.
    assert found["ValueError"]["query"] == "task:charge exception:ValueError"
    assert found["Order # not found"]["query"] == 'exception:"Order # not found"'
    act_on_group(admin_page, "delete", found["ValueError"]["query"], confirmed="1")
    assert groups(admin_page.get(pages.ERRORS))["ValueError"]["number"] == "4"
    assert "No errors match." in text(admin_page.get(pages.ERRORS, {"q": "nothing"}))


def test_search__finds_no_name_by_a_hidden_value(client_with: MakeClient) -> None:
    make_failed_job("send", error="password=hunter2 was refused")
    for client, is_found in ((client_with(), False), (client_with("view_payload"), True)):
        assert len(client.get(pages.ERRORS).context["groups"]) == 1
        assert bool(client.get(pages.ERRORS, {"q": "hunter"}).context["groups"]) is is_found


def test_pages__have_fifty_errors_and_keep_the_search(admin_page: Client) -> None:
    for number in range(53):
        make_failed_job("send", error=f"Error{chr(97 + number // 26)}{chr(97 + number % 26)}: no")
    first = admin_page.get(pages.ERRORS, {"q": "error"})
    assert (len(first.context["groups"]), first.context["previous_url"]) == (50, "")
    second = admin_page.get(first.context["next_url"])
    assert (len(second.context["groups"]), second.context["next_url"]) == (3, "")
    assert second.context["back"] == f"{pages.ERRORS}?q=error&page=2"
    assert len(admin_page.get(second.context["previous_url"]).context["groups"]) == 50
    assert admin_page.get(pages.ERRORS, {"page": "x9"}).status_code == 200


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
    listed = admin_page.get(pages.JOBS, {"q": "exception:KeyError"}).context["cl"].result_list
    # First those that have no attempts left, then the latest failures.
    assert [job.pk for job in listed][1:] == ids[::-1]


def test_running_jobs_are_in_no_group(admin_page: Client) -> None:
    make_job("send", attempts=2, last_error="ValueError: no", locked_by="worker")
    assert admin_page.get(pages.ERRORS).context["groups"] == []


def test_a_whole_group_is_retried(admin_page: Client) -> None:
    failed = make_failed_job("send", error="KeyError: 'x'")
    retried = failed, make_job("send", attempts=1, last_error="KeyError: 'y'", run_at=minutes_ago(-60))
    other = make_failed_job("send", error="ValueError: z")
    (group,) = [each for each in admin_page.get(pages.ERRORS).context["groups"] if each["name"] == "KeyError"]
    response = act_on_group(admin_page, "retry", group["query"], confirmed="1")
    assert messages(response) == [f"2 jobs will be retried now. #{retried[0]} #{retried[1]}"]
    assert response.request["PATH_INFO"] == pages.ERRORS
    assert set(Job.objects.filter(attempts__gt=0).values_list("pk", flat=True)) == {other}


def test_a_group_that_has_failed_permanently_cannot_be_failed(admin_page: Client) -> None:
    make_failed_job("send", error="KeyError: 'x'")
    assert "Fail all…" not in text(admin_page.get(pages.ERRORS))
    make_job("send", attempts=1, last_error="KeyError: 'y'", run_at=minutes_ago(-60))
    assert "Retry all… More Fail all… Delete all…" in text(admin_page.get(pages.ERRORS))
    asked = act_on_group(admin_page, "fail", "task:send exception:KeyError")
    assert asked.context["title"] == "Fail 1 job?"
    response = confirm(admin_page, asked, reason="No printer.")
    assert messages(response)[0].startswith("1 job was failed.")
    errors = set(Job.objects.values_list("last_error", flat=True))
    assert errors == {"KeyError: 'x'", FAILED}, "tracebacks are kept"


def test_a_group_shows_its_name_once(admin_page: Client) -> None:
    make_failed_job("charge", error=f"{PATH}: The card was stolen.")
    page = admin_page.get(pages.ERRORS)
    (group,) = page.context["groups"]
    assert (group["name"], group["message"]) == ("PermanentFailure", "The card was stolen.")
    assert f'title="{PATH}"' in body(page)
    assert len(admin_page.get(group["jobs_url"]).context["cl"].result_list) == 1


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
    (died,) = groups(admin_page.get(pages.ERRORS, {"q": "convert"})).values()
    assert (died["name"], tasks(died)) == ("WorkerDiedError", [("convert", "2")])
    assert len(admin_page.get(died["jobs_url"]).context["cl"].result_list) == 2
    events = body(admin_page.get(pages.EVENTS))
    assert f'<a href="{pages.job_url(poison)}"><bdi>#{poison}</bdi></a> has no attempt left and failed.' in events
    assert pages.job_url(neighbour) not in events
