"""Each action on jobs."""

from __future__ import annotations

from datetime import timedelta

from django.contrib.admin.models import LogEntry
from django.test import Client
from django.utils import timezone

from django_graphile_worker.models import Job
from tests.support import admin_pages as pages
from tests.support.admin_pages import act, body, log_entries, messages, text
from tests.support.factories import make_failed_job, make_job, make_queue, minutes_ago


def test_run_now_keeps_the_order_of_a_queue(admin_page: Client) -> None:
    """A job that is due must not move behind the others of its queue."""
    jobs = [make_job("send", queue_name="eu", run_at=minutes_ago(9 - number)) for number in range(3)]
    later = make_job("send", queue_name="eu", run_at=minutes_ago(-60), attempts=2, last_error="no")
    said = messages(act(admin_page, "run_now", jobs[0], later))
    assert said == [
        f"1 job will run now. 1 of them is in a queue, and starts when the queue is free. #{later}",
        "1 job was skipped: its state is “Ready”.",
    ]
    assert list(Job.objects.order_by("priority", "run_at").values_list("pk", flat=True)) == [*jobs, later]
    assert Job.objects.get(pk=later).attempts == 2, "its attempts stay"


def test_run_next_moves_a_job_before_all_others_of_its_queue(admin_page: Client) -> None:
    make_queue("eu", locked_by="worker")
    first, second = (make_job("send", queue_name="eu", priority=-4, run_at=minutes_ago(minutes)) for minutes in (9, 5))
    make_job("send", priority=7)
    said = messages(act(admin_page, "run_next", second))
    note = "It is the first job of its queue, and starts when the queue is free."
    assert said == [f"1 job will run next. {note} #{second}"]
    assert Job.objects.get(pk=second).priority == -5
    assert Job.objects.get(pk=first).priority == -4
    said = messages(act(admin_page, "run_next", second))
    assert said == ["1 job was skipped, because it is before all other jobs already."]


def test_retry_gives_a_failed_job_all_its_attempts_again(admin_page: Client) -> None:
    job_id = make_failed_job("send", run_at=minutes_ago(-60), error="KeyError: 'x'")
    assert messages(act(admin_page, "retry", job_id)) == [f"1 job will be retried now. #{job_id}"]
    job = Job.objects.get(pk=job_id)
    assert (job.attempts, job.is_available, job.last_error) == (0, True, "KeyError: 'x'")
    assert job.run_at <= timezone.now()
    assert log_entries() == [(f"#{job_id}", "Retried.")]


def test_reschedule_asks_and_changes_the_given_fields(admin_page: Client) -> None:
    job_id = make_failed_job("send", priority=3)
    asked = act(admin_page, "reschedule", job_id)
    assert asked.context["title"] == f"Reschedule send #{job_id}?"
    assert "Empty fields stay unchanged." in text(asked)
    assert Job.objects.get(pk=job_id).attempts == 25
    then = (timezone.now() + timedelta(days=2)).replace(microsecond=0)
    given = {"run_at": f"{then:%Y-%m-%dT%H:%M:%S}", "attempts": "1", "max_attempts": "4"}
    said = messages(act(admin_page, "reschedule", job_id, confirmed="1", **given))
    assert said == [f"1 job was rescheduled. #{job_id}"]
    job = Job.objects.get(pk=job_id)
    assert (job.run_at, job.attempts, job.max_attempts, job.priority) == (then, 1, 4, 3)


def test_reschedule_makes_a_failed_job_runnable(admin_page: Client) -> None:
    job_id = make_failed_job("send")
    act(admin_page, "reschedule", job_id, confirmed="1", run_at="2090-01-02T09:00:00")
    job = Job.objects.get(pk=job_id)
    assert (job.attempts, job.is_available, job.run_at.year) == (0, True, 2090)


def test_delete_asks_and_deletes(admin_page: Client) -> None:
    job_id = make_job("send", key="a")
    assert "This cannot be undone." in text(act(admin_page, "delete", job_id))
    assert Job.objects.filter(pk=job_id).exists()
    assert messages(act(admin_page, "delete", job_id, confirmed="1")) == ["1 job was deleted."]
    assert not Job.objects.filter(pk=job_id).exists()
    assert LogEntry.objects.get().is_deletion()


def test_fail_keeps_the_traceback_and_adds_the_reason(admin_page: Client) -> None:
    new, retrying = make_job("send"), make_job("send", attempts=2, last_error="KeyError: 1\n\nframes")
    failed = make_failed_job("send", error="OSError: 2")
    reason = "Customer left; password=hunter2"
    said = messages(act(admin_page, "fail", new, retrying, failed, confirmed="1", reason=reason))
    assert said[1:] == ["1 job was skipped: its state is “Failed”."]
    errors = dict(Job.objects.values_list("pk", "last_error"))
    assert errors == {
        new: f"{reason}\n\nNot tried again after attempt 0 of 25.",
        retrying: f"KeyError: 1\n\nframes\n\n{reason}\n\nNot tried again after attempt 2 of 25.",
        failed: "OSError: 2",
    }
    assert set(Job.objects.values_list("attempts", flat=True)) == {25}
    assert log_entries()[0] == (f"#{new}", "Failed. Reason: Customer left; password=••••••")


class TestEditAndRetry:
    def url(self, job_id: int) -> str:
        return f"{pages.JOBS}{job_id}/edit/"

    def test_is_one_step(self, admin_page: Client) -> None:
        job_id = make_failed_job("send", payload={"order": 1}, error="KeyError: 'x'", run_at=minutes_ago(-60))
        page = admin_page.get(self.url(job_id))
        assert page.context["title"] == f"Edit and retry send #{job_id}"
        assert page.context["form"].initial == {"payload": '{\n  "order": 1\n}', "revision": 0}
        wrong = admin_page.post(self.url(job_id), {"payload": "{", "revision": "0"})
        assert "This is not JSON." in text(wrong)
        done = admin_page.post(self.url(job_id), {"payload": '{"order": 2}', "revision": "0"}, follow=True)
        assert messages(done) == ["The job has its new payload, and will be retried now."]
        job = Job.objects.get(pk=job_id)
        assert (job.payload, job.attempts, job.last_error, job.revision) == ({"order": 2}, 0, "KeyError: 'x'", 1)
        assert job.run_at <= timezone.now()
        assert log_entries() == [(f"send #{job_id}", "Edited the payload and retried.")]

    def test_does_not_overwrite_what_another_has_changed(self, admin_page: Client) -> None:
        job_id = make_failed_job("send", payload={"order": 1}, revision=4)
        said = admin_page.post(self.url(job_id), {"payload": "{}", "revision": "3"})
        assert messages(said) == ["Nothing was saved: the job was changed meanwhile. Check its payload again."]
        assert (Job.objects.get().payload, said.context["form"].initial["revision"]) == ({"order": 1}, 4)

    def test_is_for_failed_jobs_only(self, admin_page: Client) -> None:
        for job_id in (make_job("send"), make_job("send", attempts=1, locked_by="worker")):
            said = admin_page.post(self.url(job_id), {"payload": "{}", "revision": "0"}, follow=True)
            assert "Only jobs that have failed can be edited." in messages(said)[0]

    def test_needs_the_permissions_to_retry_to_see_payloads_and_to_add_jobs(self, client_with: object) -> None:
        """A user who may not add jobs must not run a task with any payload."""
        job_id = make_failed_job("send")
        assert callable(client_with)
        needed = {"reschedule_job", "view_payload", "add_job"}
        for held in (*(needed - {each} for each in needed), needed):
            client = client_with(*held)
            assert client.get(self.url(job_id)).status_code == (200 if held == needed else 403)
            assert (self.url(job_id) in body(client.get(pages.job_url(job_id)))) == (held == needed)
