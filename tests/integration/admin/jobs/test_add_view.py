"""The page that adds a job."""

from __future__ import annotations

from django.test import Client

from django_graphile_worker.models import Job
from tests.support import admin_pages as pages
from tests.support.admin_pages import log_entries, make_worker, messages
from tests.support.factories import make_failed_job


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
    }
    response = admin_page.post(pages.ADD, given, follow=True)
    job = Job.objects.get()
    assert messages(response) == [f"Added send_receipt #{job.pk}."]
    assert job.payload == {"order": 9007199254740993}
    assert (job.priority, job.max_attempts, job.key, job.flags) == (-3, 7, "k", {"slow": True, "remote": True})
    assert job.run_at.isoformat() == "2040-01-02T03:04:05+00:00"
    assert log_entries() == [(f"send_receipt #{job.pk}", "Added in the admin.")]


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
