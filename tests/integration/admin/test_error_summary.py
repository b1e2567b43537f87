"""Errors as lists show them."""

from __future__ import annotations

import html

import pytest
from django.test import Client

from django_graphile_worker.admin import error_summary
from tests.integration.admin.conftest import MakeClient
from tests.support import admin_pages as pages
from tests.support.admin_pages import body, text
from tests.support.factories import make_failed_job

PATH = "django_graphile_worker.exceptions.PermanentFailure"


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
        assert error_summary.summarize(f"{line}\n\nTraceback …", sees_payloads=True).text == shown

    def test_a_list_shows_the_name_and_keeps_the_path_in_a_title(self, admin_page: Client) -> None:
        make_failed_job("charge", error=f"{PATH}: The card was <stolen>.")
        page = admin_page.get(pages.JOBS)
        assert "PermanentFailure: The card was <stolen>." in text(page)
        assert PATH not in text(page)
        assert f'title="{html.escape(PATH + ": The card was <stolen>.")}"' in body(page)

    def test_can_be_searched_for_as_they_are_shown(self, admin_page: Client) -> None:
        wanted = make_failed_job("charge", error=f"{PATH}: stolen")
        make_failed_job("charge", error="KeyError: 'x'")
        for name in ("PermanentFailure", PATH):
            found = pages.listed(admin_page.get(pages.JOBS, {"q": f"exception:{name}"}))
            assert [job.pk for job in found] == [wanted]

    def test_a_title_hides_what_the_line_hides(self, client_with: MakeClient) -> None:
        make_failed_job("charge", error=f"{PATH}: password=hunter2 was refused")
        client = client_with()
        for url in (pages.JOBS, pages.ERRORS):
            page = client.get(url)
            assert "PermanentFailure" in text(page)
            assert "hunter2" not in body(page)
