"""The view of the gauges: who may see it, and that many requests read once."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest
from django.test import Client, override_settings
from django.urls import path

from django_graphile_worker import views
from django_graphile_worker.telemetry import readings
from tests.support.factories import make_job, minutes_ago
from tests.support.scrapes import Scrape

pytestmark = [pytest.mark.django_db, pytest.mark.urls(__name__)]
urlpatterns = [path("metrics", views.metrics)]
TOKEN = {"Authorization": "Bearer secret"}


@pytest.fixture(autouse=True)
def nothing_was_read() -> Iterator[None]:
    readings.clear_cache()
    yield
    readings.clear_cache()


@pytest.fixture
def with_token(settings: Any) -> None:
    settings.GRAPHILE_WORKER = settings.GRAPHILE_WORKER | {"METRICS_TOKEN": "secret"}


def test_without_the_setting_nobody_sees_the_metrics(client: Client) -> None:
    response = client.get("/metrics", headers=TOKEN)
    assert response.status_code == 403
    assert 'Set GRAPHILE_WORKER["METRICS_TOKEN"]' in response.content.decode()


@pytest.mark.usefixtures("with_token")
class TestWithToken:
    @pytest.mark.parametrize("headers", [{}, {"Authorization": "Bearer other"}, {"Authorization": "secret"}])
    def test_other_requests_are_refused(self, client: Client, headers: dict[str, str]) -> None:
        assert client.get("/metrics", headers=headers).status_code == 401

    def test_scheme_is_accepted_in_any_case(self, client: Client) -> None:
        assert client.get("/metrics", headers={"Authorization": "bearer secret"}).status_code == 200

    def test_many_scrapers_read_once(self, client: Client, django_assert_num_queries: Any) -> None:
        make_job("send", run_at=minutes_ago(2))
        response = client.get("/metrics", headers=TOKEN)
        assert response.status_code == 200
        found = Scrape(response.content.decode())
        assert found.value("up") == 1
        assert found.value("backlog_jobs", task="send", state="ready") == 1
        assert found.value("backlog_seconds_per_slot") == 1
        # A web process has run no jobs.
        assert "graphile_worker_jobs_total" not in found.text
        numbers = {"backlog_seconds": 1.0, "backlog_seconds_per_slot": 1.0}
        assert client.get("/metrics?format=json", headers=TOKEN).json() == {"default": numbers}
        with django_assert_num_queries(0):
            assert client.get("/metrics", headers=TOKEN).content == response.content

    def test_project_that_requires_a_login__lets_scrapers_in(self, client: Client, settings: Any) -> None:
        required = [*settings.MIDDLEWARE, "django.contrib.auth.middleware.LoginRequiredMiddleware"]
        with override_settings(MIDDLEWARE=required):
            assert client.get("/metrics", headers=TOKEN).status_code == 200

    def test_missing_package__is_named(self, client: Client, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr(views, "find_spec", lambda name: None)
        response = client.get("/metrics", headers=TOKEN)
        assert response.status_code == 501
        assert 'pip install "django-graphile-worker[prometheus]"' in response.content.decode()

    def test_database_that_does_not_answer__leaves_an_answer(
        self, client: Client, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
    ) -> None:
        monkeypatch.setattr(readings, "READ_TIMEOUT", 0.0001)
        monkeypatch.setattr("django_graphile_worker.sql.inspection.gauges.GAUGES", "/* gw:gauges */ select pg_sleep(9)")
        response = client.get("/metrics", headers=TOKEN)
        assert Scrape(response.content.decode()).value("up") == 0
        assert client.get("/metrics?format=json", headers=TOKEN).status_code == 503
        assert "cannot be read: canceling statement due to statement timeout" in caplog.text
