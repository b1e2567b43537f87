from __future__ import annotations

from datetime import UTC, datetime, timedelta

from django_graphile_worker.worker.job_clock import job_clock


def test_job_clock__leaves_the_time_to_the_database_unless_the_setting_asks_for_the_worker_s_own() -> None:
    assert job_clock(use_local_time=False)() is None
    now = job_clock(use_local_time=True)()
    assert now is not None
    assert abs(now - datetime.now(UTC)) < timedelta(minutes=1)
