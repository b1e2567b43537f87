"""manage.py graphile_worker show."""

from __future__ import annotations

import pytest
from django.core.management import CommandError

from tests.support.factories import TOO_DEEP, make_failed_job, make_job, make_queue, minutes_ago
from tests.support.operating import execute, make_worker, operate

pytestmark = pytest.mark.django_db


def test_show__tells_everything() -> None:
    job_id = make_job(
        "a",
        {"order": [1, 2]},
        key="the-key",
        queue_name="mail",
        flags={"slow": True},
        attempts=2,
        last_error="ValueError: no\n  in line 2",
        run_at=minutes_ago(-10),
    )
    shown = operate("show", str(job_id)).out
    for part in (str(job_id), "the-key", "mail", "slow", "2 of 25", '"order": [', "  ValueError: no", "    in line 2"):
        assert part in shown
    told = operate("show", f"#{job_id}", "--json").json
    assert told["payload"] == {"order": [1, 2]}
    assert told["last_error"] == "ValueError: no\n  in line 2"


def test_show__names_the_schedule_and_not_the_flag_that_says_so() -> None:
    shown = operate("show", str(make_job("a", flags={"schedule:17:90000": True, "slow": True}))).out
    assert "#17" in shown
    assert "slow" in shown
    assert ":90000" not in shown
    assert "schedule" not in operate("show", str(make_job("a", flags={"crontab:90000": True}))).out


def test_show__says_why_a_job_waits() -> None:
    make_worker("django-worker-1", tasks=["known"])
    make_worker("django-worker-2", tasks=["unknown"], beat=minutes_ago(10))
    make_queue("mail", locked_by="django-worker-1")

    def reasons(job_id: int) -> str:
        return " / ".join(operate("show", str(job_id), "--json").json["waits_because"])

    assert reasons(make_job("known")) == ""
    assert "due in 5 m" in reasons(make_job("known", run_at=minutes_ago(-5.5)))
    assert "queue 'mail' is held by django-worker-1" in reasons(make_job("known", queue_name="mail"))
    assert "no live worker" in reasons(make_job("unknown"))
    assert "attempts are used up" in reasons(make_failed_job("known"))
    assert reasons(make_job("known", locked_by="django-worker-1")) == ""


def test_show__of_a_payload_that_python_cannot_decode_shows_its_text() -> None:
    job_id = make_job("a")
    deep = TOO_DEEP
    execute("update {schema}._private_jobs set payload = %s::json where id = %s", [deep, job_id])
    assert deep in operate("show", str(job_id)).out
    execute("update {schema}._private_jobs set payload = %s::json where id = %s", ['"\\ud800"', job_id])
    assert "\\ud800" in operate("show", str(job_id)).out
    assert operate("show", str(job_id), "--json").json["payload"] == "\ud800"


def test_show__of_a_job_that_is_not_there_is_an_error() -> None:
    with pytest.raises(CommandError, match="There is no job 99"):
        operate("show", "99")


@pytest.mark.parametrize("typed", ["x", "0", "-1", "1.5", "99999999999999999999"])
def test_ids__that_are_none_are_refused(typed: str) -> None:
    with pytest.raises(CommandError, match=r"expected a job id|unrecognized|arguments are required"):
        operate("show", typed)
