"""What lists and job pages say about jobs that failed."""

from __future__ import annotations

import html
from typing import Any

import pytest
from django.test import Client

from django_graphile_worker.admin import error_summary
from django_graphile_worker.exceptions import PermanentFailure
from tests.integration.admin import pages
from tests.integration.admin.conftest import MakeClient
from tests.integration.admin.pages import body, text
from tests.support.factories import make_failed_job, make_job, minutes_ago

PATH = "django_graphile_worker.exceptions.PermanentFailure"


class StolenCard(PermanentFailure):
    """A task's own kind of giving up."""


class TestNames:
    @pytest.mark.parametrize(
        ("line", "shown"),
        [
            (f"{PATH}: stolen", "PermanentFailure: stolen"),
            (PATH, "PermanentFailure"),
            ("shop.printing.NoPrinter: no", "shop.printing.NoPrinter: no"),
            (
                "django_graphile_worker.exceptions is a module: yes",
                "django_graphile_worker.exceptions is a module: yes",
            ),
            ("my_django_graphile_worker.Oops: no", "my_django_graphile_worker.Oops: no"),
            ("", ""),
        ],
    )
    def test_only_our_own_paths_are_left_out(self, line: str, shown: str) -> None:
        assert error_summary.summary(f"{line}\n\nTraceback …", sees_payloads=True).text == shown

    def test_a_list_shows_the_name_and_keeps_the_path_in_a_title(self, admin_page: Client) -> None:
        make_failed_job("charge", error=f"{PATH}: The card was <stolen>.")
        page = admin_page.get(pages.JOBS)
        assert "PermanentFailure: The card was <stolen>." in text(page)
        assert PATH not in text(page)
        assert f'title="{html.escape(PATH + ": The card was <stolen>.")}"' in body(page)

    def test_a_group_says_its_name_once(self, admin_page: Client) -> None:
        make_failed_job("charge", error=f"{PATH}: The card was stolen.")
        page = admin_page.get(pages.ERRORS)
        (group,) = page.context["groups"]
        assert (group["name"], group["message"]) == ("PermanentFailure", "The card was stolen.")
        assert f'title="{PATH}"' in body(page)
        assert len(admin_page.get(group["jobs_url"]).context["lines"]) == 1

    def test_can_be_searched_for_as_they_are_shown(self, admin_page: Client) -> None:
        wanted = make_failed_job("charge", error=f"{PATH}: stolen")
        make_failed_job("charge", error="KeyError: 'x'")
        for name in ("PermanentFailure", PATH):
            lines = admin_page.get(pages.JOBS, {"q": f"exception:{name}"}).context["lines"]
            assert [line.id for line in lines] == [wanted]

    def test_a_title_hides_what_the_line_hides(self, client_with: MakeClient) -> None:
        make_failed_job("charge", error=f"{PATH}: password=hunter2 was refused")
        client = client_with()
        for url in (pages.JOBS, pages.ERRORS):
            page = client.get(url)
            assert "PermanentFailure" in text(page)
            assert "hunter2" not in body(page)


class TestWhyThereAreNoMoreAttempts:
    @pytest.mark.parametrize("name", [PATH, f"{StolenCard.__module__}.StolenCard"])
    def test_a_job_that_its_task_gave_up_tells_no_number_of_attempts(self, admin_page: Client, name: str) -> None:
        """Giving up sets the attempts to the most there may be, however often the job ran."""
        job_id = make_failed_job("charge", error=f"{name}: stolen", attempts=3, max_attempts=3)
        shown = text(admin_page.get(pages.job_url(job_id)))
        assert "the task gave it up" in shown
        assert "none left of 3" in shown
        assert "3 of 3" not in shown

    def test_a_job_that_used_them_up_tells_so(self, admin_page: Client) -> None:
        job_id = make_failed_job("charge", error="KeyError: 'x'", attempts=3, max_attempts=3)
        assert "no attempts left (3 of 3)" in text(admin_page.get(pages.job_url(job_id)))

    def test_one_that_is_tried_again_has_some(self, admin_page: Client) -> None:
        columns: dict[str, Any] = {"attempts": 1, "max_attempts": 3, "run_at": minutes_ago(-5)}
        job_id = make_job("charge", last_error=f"{PATH}: stolen", **columns)
        assert "1 of 3" in text(admin_page.get(pages.job_url(job_id)))
