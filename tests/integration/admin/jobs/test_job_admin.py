"""The list of jobs finds, counts and shows jobs."""

from __future__ import annotations

from django.test import Client

from tests.support import admin_pages as pages
from tests.support.factories import make_failed_job, make_job, minutes_ago
from tests.support.operating import execute


def found(client: Client, **parameters: str) -> list[int]:
    return [job.pk for job in client.get(pages.JOBS, parameters).context["cl"].result_list]


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

    def test_labels_of_django_tasks_are_shown_and_found(self, admin_page: Client) -> None:
        names = ("shop.send", "shop.send@emails", "shop.pack@emails", "plain")
        ids = {name: make_job(name) for name in names}
        assert sorted(found(admin_page, q="label:emails")) == [ids["shop.send@emails"], ids["shop.pack@emails"]]
        assert sorted(found(admin_page, q="label:default")) == [ids["shop.send"], ids["plain"]]
        assert found(admin_page, q="label:emails task:send@") == [ids["shop.send@emails"]]
        assert found(admin_page, q="label:other") == []
        page = pages.text(admin_page.get(pages.JOBS))
        assert "shop.pack label emails" in page
        assert "label default" not in page

    # What PostgreSQL's json takes and its operators refuse to read, beside what only looks like it.
    def test_payloads_that_postgresql_cannot_read_are_skipped(self, admin_page: Client) -> None:
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
        assert found(admin_page, q="payload.x:1") == list(reversed(others))
        assert found(admin_page, q="payload.x:1 task:odd", state="ready") == others
        assert found(admin_page, q="payload.y:1") == others[:1]
        assert len(found(admin_page, q="task:odd")) == 10

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


def test_shows_when_a_job_failed_permanently_and_not_its_run_at(admin_page: Client) -> None:
    make_failed_job("send", run_at=minutes_ago(-340), updated_at=minutes_ago(17))
    for state in ("all", "failed"):
        assert " 17 min " in pages.text(admin_page.get(pages.JOBS, {"state": state}))
