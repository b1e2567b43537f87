"""The page that adds a job."""

from __future__ import annotations

import re

import pytest
from django.test import Client

from django_graphile_worker import add_job, get_job
from django_graphile_worker.models import Job
from tests.integration.admin.conftest import MakeClient
from tests.support import admin_pages as pages
from tests.support.admin_pages import log_entries, make_worker, messages
from tests.support.factories import make_failed_job, make_job, minutes_ago
from tests.support.stepped_worker import own_tasks


def test_adds_with_every_option(admin_page: Client) -> None:
    given = {
        "task": "send_receipt",
        "payload": '{"order": 9007199254740993}',
        "queue_name": "eu",
        "run_at": "2040-01-02T03:04:05",
        "priority": "-3",
        "max_attempts": "7",
        "job_key": "k",
        "job_key_mode": "preserve_run_at",
        "flags": "slow, remote",
        "expires": "2040-01-02T04:04:05",
    }
    response = admin_page.post(pages.ADD, given, follow=True)
    job = Job.objects.get()
    assert messages(response) == [f"Added send_receipt #{job.pk}."]
    assert job.payload == {"order": 9007199254740993}
    assert (job.priority, job.max_attempts, job.key) == (-3, 7, "k")
    assert job.flags == {"slow": True, "remote": True, "expires:2209089845": True}
    assert job.run_at.isoformat() == "2040-01-02T03:04:05+00:00"
    assert log_entries() == [(f"send_receipt #{job.pk}", "Added in the admin.")]


def test_adds_no_second_job_with_a_unique_key(admin_page: Client) -> None:
    for _ in range(2):
        admin_page.post(pages.ADD, {"task": "send_receipt", "payload": "{}", "unique": "shop 1"})
    assert Job.objects.count() == 1


def test_zero_overrides_the_default_of_the_task(admin_page: Client) -> None:
    with own_tasks(lambda payload: None, identifier="eager", priority=-5):
        admin_page.post(pages.ADD, {"task": "eager", "payload": "{}", "priority": "0"})
    assert Job.objects.get().priority == 0


def test_defaults_of_the_task_apply(admin_page: Client) -> None:
    admin_page.post(pages.ADD, {"task": "move_stock", "payload": ""})
    job = Job.objects.get()
    assert job.job_queue is not None
    assert job.job_queue.queue_name == "warehouse"
    assert job.payload == {}


def test_tasks_of_other_workers_can_be_chosen(admin_page: Client) -> None:
    make_worker("django-worker-1", tasks=["elsewhere"])
    admin_page.post(pages.ADD, {"task": "elsewhere", "payload": "{}"})
    assert Job.objects.get().task.identifier == "elsewhere"


def test_add_again_with_an_edited_payload(admin_page: Client) -> None:
    job_id = make_failed_job(
        "send_receipt", payload={"order": 1}, queue_name="eu", priority=4, max_attempts=3, attempts=3
    )
    form = admin_page.get(pages.ADD, {"from": job_id}).context["form"]
    assert form.initial["payload"] == '{\n  "order": 1\n}'
    given = {
        "task": "send_receipt",
        "payload": '{"order": 2}',
        "queue_name": "eu",
        "priority": "4",
        "max_attempts": "3",
    }
    response = admin_page.post(f"{pages.ADD}?from={job_id}", given, follow=True)
    added = Job.objects.exclude(pk=job_id).get()
    assert messages(response) == [f"Added send_receipt #{added.pk}."]
    assert (added.payload, added.job_queue.queue_name, added.priority) == ({"order": 2}, "eu", 4)
    assert Job.objects.filter(pk=job_id).exists(), "the old one stays"


def test_duplicate_of_the_run_of_a_schedule_is_not_its_run(admin_page: Client) -> None:
    job_id = make_job("send_receipt", flags={"schedule:17:90000": True, "slow": True})
    assert admin_page.get(pages.ADD, {"from": job_id}).context["form"].initial["flags"] == "slow"
    page = admin_page.get(pages.job_url(job_id))
    assert "schedule:17" not in page.context["python"] + page.context["sql"]
    assert re.findall(r'title="Flag">([^<]*)<', pages.body(admin_page.get(pages.JOBS))) == ["slow"]


def test_duplicate_of_a_failed_job_runs_now_and_can_replace_it(admin_page: Client) -> None:
    """The time of a failed job is that of an attempt that it no longer has."""
    job_id = make_failed_job("send_receipt", payload={"order": 1}, run_at=minutes_ago(-360))
    page = admin_page.get(pages.ADD, {"from": job_id})
    assert page.context["title"] == f"Duplicate job #{job_id}"
    assert page.context["form"].initial["run_at"] is None
    assert "run_at" not in admin_page.get(pages.job_url(job_id)).context["python"]
    given = {"task": "send_receipt", "payload": "{}", "delete_original": "1"}
    response = admin_page.post(f"{pages.ADD}?from={job_id}", given, follow=True)
    added = Job.objects.get()
    assert added.pk != job_id
    assert messages(response) == [f"Added send_receipt #{added.pk}.", f"Deleted #{job_id}."]
    assert log_entries()[1] == (f"#{job_id}", f"Replaced by #{added.pk}.")


def test_duplicate_keeps_the_time_of_a_scheduled_job_only(admin_page: Client) -> None:
    then = minutes_ago(-360)
    scheduled = make_job("send_receipt", run_at=then)
    form = admin_page.get(pages.ADD, {"from": scheduled}).context["form"]
    assert form.initial["run_at"] == then
    assert "delete_original" not in form.fields, "the job will run: it is not replaced"
    retrying = make_job("send_receipt", run_at=then, attempts=1, last_error="no")
    assert admin_page.get(pages.ADD, {"from": retrying}).context["form"].initial["run_at"] is None


@pytest.mark.parametrize("codenames", [(), ("view_payload",)])
def test_duplicate__keeps_headers_also_for_users_who_may_not_see_them(
    client_with: MakeClient, codenames: tuple[str, ...]
) -> None:
    original = add_job("send_receipt", headers={"tenant": "acme-inc"}).id
    client = client_with(*codenames, "add_job")
    form = client.get(pages.ADD, {"from": original}).context["form"]
    assert ("headers" in form.fields) is bool(codenames)
    given = {"task": "send_receipt", "payload": "{}"} | ({"headers": '{"tenant": "acme-inc"}'} if codenames else {})
    client.post(f"{pages.ADD}?from={original}", given)
    added = get_job(Job.objects.exclude(pk=original).get().pk)
    assert added is not None
    assert added.headers == {"tenant": "acme-inc"}


def test_headers__are_empty_where_there_are_none(admin_page: Client) -> None:
    assert 'value="null"' not in pages.body(admin_page.get(pages.ADD))
