"""Charts of a project on the overview and on the page of a task."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from django.contrib import admin
from django.http import HttpRequest
from django.test import Client
from django.urls import path

from django_graphile_worker.admin import OverviewAdmin
from django_graphile_worker.admin.charts import SPANS, Chart, ChartPeriods
from django_graphile_worker.models import Overview
from tests.support import admin_pages as pages
from tests.support.factories import make_job

NOW = datetime(2026, 5, 1, 12, 30, 20, tzinfo=UTC)
PERIODS = ChartPeriods(SPANS["hour"], NOW)


class ShopOverviewAdmin(OverviewAdmin):
    def get_charts(self, request: HttpRequest, periods: ChartPeriods, task: str | None) -> list[Chart]:
        placed = periods.counts([periods.now, periods.now])
        return [periods.chart("orders", f"Orders of {task or 'all tasks'}", {"placed": placed}, unit="orders")]


@pytest.fixture
def shop_overview(settings: Any) -> None:
    site = admin.AdminSite()
    site.register(Overview, ShopOverviewAdmin)
    settings.ROOT_URLCONF = (path("admin/", site.urls),)


def charts(client: Client, **query: str) -> dict[str, Any]:
    return {chart.name: chart for chart in client.get(pages.OVERVIEW, query).context["charts"]}


def test_a_chart_of_the_project__stands_beside_ours(admin_page: Client, shop_overview: None) -> None:
    make_job("send")
    found = charts(admin_page)
    assert list(found) == ["throughput", "backlog", "orders"]
    assert found["orders"].title == "Orders of all tasks"
    assert found["orders"].table[-1][1] == ["2"]
    assert charts(admin_page, task="send")["orders"].title == "Orders of send"
    assert "orders" not in charts(admin_page, queue="eu")


def test_periods__count_and_add_up_by_time() -> None:
    minute_ago, before = NOW - timedelta(minutes=1), PERIODS.since - timedelta(seconds=1)
    assert PERIODS.counts([NOW, NOW, minute_ago, before])[-3:] == [0, 1, 2]
    assert PERIODS.sums([(NOW, 2.5), (minute_ago, 1), (before, 9)])[-2:] == [1, 2.5]
    assert sum(PERIODS.counts([PERIODS.since, before])) == 1


def test_a_chart__has_at_most_three_series() -> None:
    values = PERIODS.counts([])
    assert len(PERIODS.chart("few", "Few", dict.fromkeys("abc", values), is_stacked=False).series) == 3
    with pytest.raises(ValueError, match="at most 3 series"):
        PERIODS.chart("many", "Many", dict.fromkeys("abcd", values))
