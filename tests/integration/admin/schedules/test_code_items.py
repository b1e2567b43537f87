"""Items of the crontab in the list of schedules."""

from __future__ import annotations

import re
from typing import Any

import pytest
from django.db import connection
from django.test import Client

from django_graphile_worker.models import Job
from django_graphile_worker.sql.schedules import from_code
from django_graphile_worker.sql.schedules.runs import runs_of_crontabs
from tests.support import admin_pages as pages
from tests.support.admin_pages import body, log_entries, messages, text
from tests.support.operating import execute


class TestPage:
    @pytest.fixture(autouse=True)
    def crontab(self, settings: Any) -> None:
        lines = "0 4 * * 1-5 count_orders ?id=nightly&fill=2d&tz=Europe/Paris"
        settings.GRAPHILE_WORKER = {**settings.GRAPHILE_WORKER, "CRONTAB": lines}

    def test_shows_items_in_words_with_their_times(self, admin_page: Client) -> None:
        execute(
            "insert into {schema}._private_known_crontabs values"
            " ('nightly', now() - interval '9 days', now() - interval '5 hours'),"
            " ('retired', now() - interval '90 days', null)",
        )
        shown = text(admin_page.get(pages.SCHEDULES))
        # In the hours after its time, the item is late.
        assert re.search(
            r"nightly in code count_orders backfill 2 d (?:late was due [\w ]+ ago )?"
            r"At 04:00, .*Monday to Friday \(Europe/Paris\) 0 4 \* \* 1-5",
            shown,
        )
        assert "5 h ago" in shown
        assert "crontab of this site retired last run" in shown

    def test_an_item_that_is_paused_has_no_next_run_and_keeps_its_last(
        self, admin_page: Client, worker_schema: str
    ) -> None:
        execute(
            "insert into {schema}._private_known_crontabs values"
            " ('nightly', now() - interval '9 days', now() - interval '5 hours'), ('other', now(), 'infinity')",
        )
        with connection.cursor() as cursor:
            from_code.pause(cursor, "nightly", schema=worker_schema)
        (row,) = [row for row in pages.rows(admin_page.get(pages.SCHEDULES)) if row.name == "nightly"]
        assert ([badge.text for badge in row.badges], row.next_times) == (["paused"], ())
        shown = text(admin_page.get(pages.SCHEDULES))
        assert "backfill 2 d paused" in shown
        assert "0 4 * * 1-5 \N{EN DASH} 5 h ago" in shown
        assert "never (infinity)" not in shown

    def test_an_item_that_no_worker_fired_in_time_is_late(self, admin_page: Client, settings: Any) -> None:
        lines = "".join(f"* * * * * count_orders ?id={name}\n" for name in ("minutely", "stopped", "new"))
        settings.GRAPHILE_WORKER = {**settings.GRAPHILE_WORKER, "CRONTAB": lines}
        execute(
            "insert into {schema}._private_known_crontabs values"
            " ('minutely', now() - interval '9 days', now() - interval '44 minutes'),"
            " ('stopped', now() - interval '9 days', 'infinity'), ('new', now(), null)",
        )
        shown = text(admin_page.get(pages.SCHEDULES))
        assert re.search(r"minutely in code count_orders late was due 4[34] min .*44 min [\d s]*ago", shown)
        assert shown.count(" late was due") == 1
        assert re.search(r"Schedule late: minutely was due 4[34] min ago\.", text(admin_page.get(pages.OVERVIEW)))
        execute("update {schema}._private_known_crontabs set last_execution = now() where identifier = 'minutely'")
        assert " late " not in text(admin_page.get(pages.SCHEDULES))
        assert "Schedule late" not in text(admin_page.get(pages.OVERVIEW))

    def test_mistakes_are_shown(self, admin_page: Client, settings: Any) -> None:
        settings.GRAPHILE_WORKER = {**settings.GRAPHILE_WORKER, "CRONTAB": "99 * * * * count_orders"}
        shown = text(admin_page.get(pages.SCHEDULES))
        assert "The crontab has mistakes" in shown
        assert "99" in shown


class TestRunNow:
    def test_runs_an_item_now(self, admin_page: Client) -> None:
        response = admin_page.post(pages.SCHEDULES, {"row": "run_now item count_orders"}, follow=True)
        job = Job.objects.get()
        assert messages(response) == [f"Added count_orders #{job.pk}."]
        assert f'<a href="{pages.job_url(job.pk)}">' in body(response)
        assert job.payload["_cron"]["backfilled"] is False
        assert log_entries() == [("count_orders", f"Run now, as job #{job.pk}.")]

    def test_a_run_by_hand_is_one_of_the_last_runs(self, admin_page: Client, worker_schema: str) -> None:
        admin_page.post(pages.SCHEDULES, {"row": "run_now item count_orders"})
        with connection.cursor() as cursor:
            (run,) = runs_of_crontabs(cursor, ["count_orders"], schema=worker_schema)["count_orders"]
        assert (run.kind, run.run_by, run.job_id) == ("by_hand", "root", Job.objects.get().pk)
        assert Job.objects.get().flags == {"crontab:3600": True}

    def test_unknown_items_are_not_found(self, admin_page: Client) -> None:
        assert admin_page.post(pages.SCHEDULES, {"row": "run_now item nope"}).status_code == 404
