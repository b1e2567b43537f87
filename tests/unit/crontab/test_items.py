from __future__ import annotations

from django_graphile_worker.crontab import CronItem


def test_an_item_in_a_log_is_its_name_and_pattern() -> None:
    assert str(CronItem("task", "@daily", identifier="nightly")) == "nightly (@daily)"
    assert str(CronItem("task", len)) == "task (len)"  # type: ignore[arg-type]
