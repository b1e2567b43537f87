"""``jobs``, ``show``, ``history`` and ``errors``."""

from __future__ import annotations

import io
from collections.abc import Iterator
from datetime import UTC, datetime
from typing import Any

import pytest
from django.core.management import CommandError, call_command
from django.db import connection
from django.utils import timezone

from django_graphile_worker.results.waiting import close_listeners
from tests.support.factories import TOO_DEEP, make_failed_job, make_job, make_queue, minutes_ago
from tests.support.history import make_attempt
from tests.support.operating import execute, make_worker, operate
from tests.support.results import store_result
from tests.support.rows import in_quotes

pytestmark = pytest.mark.django_db

GIVEN_UP = "shop.errors.CardStolen: no\n\nNot tried again after attempt 2 of 25.\n\nTraceback"


def _ids(*arguments: str) -> list[int]:
    return [job["id"] for job in operate("jobs", "--json", *arguments).json]


@pytest.fixture
def one_of_each() -> dict[str, int]:
    return {
        "ready": make_job("a", run_at=minutes_ago(1)),
        "scheduled": make_job("a", run_at=minutes_ago(-5)),
        "running": make_job("a", locked_by="worker-1", attempts=1),
        "retrying": make_job("a", run_at=minutes_ago(-5), attempts=3),
        "failed": make_failed_job("a", run_at=minutes_ago(-5)),
    }


@pytest.mark.parametrize("state", ["ready", "scheduled", "running", "retrying", "failed"])
@pytest.mark.parametrize("narrowed", [(), ("--task", "a")])
def test_jobs__of_a_state_are_those_and_no_others(
    one_of_each: dict[str, int], state: str, narrowed: tuple[str, ...]
) -> None:
    (job,) = operate("jobs", "--json", "--state", state, *narrowed).json
    assert (job["id"], job["state"]) == (one_of_each[state], state)


def test_jobs__are_the_newest_first_or_of_a_task_state_by_state(one_of_each: dict[str, int]) -> None:
    assert _ids() == sorted(one_of_each.values(), reverse=True)
    make_job("b")
    order = ["running", "ready", "scheduled", "retrying", "failed"]
    assert _ids("--task", "a") == [one_of_each[state] for state in order]


def test_jobs__that_are_ready_come_in_the_order_of_the_claim() -> None:
    late = make_job("a", priority=5, run_at=minutes_ago(9))
    second = make_job("b", priority=0, run_at=minutes_ago(1), queue_name="q", flags={"f": True})
    first = make_job("a", priority=0, run_at=minutes_ago(2), flags={"f": True})
    urgent = make_job("a", priority=-3, run_at=minutes_ago(0.5))
    assert _ids("--state", "ready") == [urgent, first, second, late]
    assert _ids("--state", "ready", "--limit", "2") == [urgent, first]
    assert _ids("--state", "ready", "--task", "a") == [urgent, first, late]


@pytest.mark.parametrize("state", ["ready", "scheduled", "running", "retrying", "failed"])
def test_jobs__of_a_queue_are_those_and_no_others(state: str) -> None:
    states: dict[str, dict[str, Any]] = {
        "ready": {"run_at": minutes_ago(1)},
        "scheduled": {"run_at": minutes_ago(-1)},
        "running": {"locked_by": "worker-1"},
        "retrying": {"run_at": minutes_ago(-1), "attempts": 1},
        "failed": {"attempts": 25, "max_attempts": 25},
    }
    columns = states[state]
    make_job("a", **columns)
    make_job("a", queue_name="other", **columns)
    wanted = [make_job("a", queue_name="mail", **columns), make_job("b", queue_name="mail", **columns)]
    assert sorted(_ids("--state", state, "--queue", "mail")) == wanted
    assert _ids("--state", state, "--queue", "mail", "--task", "b") == wanted[1:]
    assert sorted(_ids("--queue", "mail")) == wanted


@pytest.mark.parametrize(
    ("arguments", "found"),
    [
        (("--label", "emails"), ["shop.tasks.pack@emails", "shop.tasks.send@emails"]),
        (("--label", "default"), ["plain", "shop.tasks.send"]),
        (("--label", "emails", "--task", "shop.tasks.send@emails"), ["shop.tasks.send@emails"]),
        (("--label", "unknown"), []),
    ],
)
def test_jobs__of_a_label(arguments: tuple[str, ...], found: list[str]) -> None:
    for name in ("shop.tasks.send", "shop.tasks.send@emails", "shop.tasks.pack@emails", "plain"):
        make_job(name)
    assert sorted(job["task_identifier"] for job in operate("jobs", "--json", *arguments).json) == found


def test_jobs__say_when_there_are_more_or_none() -> None:
    for _ in range(3):
        make_job("send_receipt")
    assert "first 2" in operate("jobs", "--limit", "2").err
    assert "first" not in operate("jobs", "--limit", "3").err
    said = operate("jobs", "--task", "send_recipt")
    assert said.out == ""
    assert "No job has the task 'send_recipt'. Did you mean 'send_receipt'?" in said.err
    assert "No job has the queue 'mail'." in operate("jobs", "--queue", "mail").err


def test_jobs__show_times_in_the_current_time_zone_and_from_now() -> None:
    make_job("a", run_at=datetime(2040, 1, 1, 12, tzinfo=UTC))
    make_job("b", run_at=minutes_ago(180))
    # A time that no Python can hold.
    make_job("c", run_at="infinity")
    with timezone.override("Asia/Tokyo"):
        shown = operate("jobs").out
    assert " 2040-01-01 21:00 " in shown
    assert " 3 h ago " in shown
    assert len(_ids("--state", "scheduled")) == 2


def test_jobs__have_ids_exact_to_the_last_digit(settings: Any) -> None:
    settings.USE_THOUSAND_SEPARATOR = True
    execute("alter table {schema}._private_jobs alter column id restart with 9007199254740993")
    job_id = make_job("a")
    assert "9007199254740993" in operate("jobs").out.split()
    assert operate("show", str(job_id), "--json").json["id"] == 9007199254740993


def test_jobs__that_were_given_up_tell_how_often_they_really_ran() -> None:
    job_id = make_failed_job("charge", error=GIVEN_UP)
    (job,) = operate("jobs", "--json").json
    assert (job["attempts"], job["attempts_made"], job["max_attempts"]) == (25, 2, 25)
    assert "2/25" in operate("jobs").out
    expected = f"waits because    it was given up after attempt 2 of 25; to try it again: retry {job_id}"
    assert expected in operate("show", str(job_id)).out


class _Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


def test_jobs__on_a_terminal_of_80_columns_keep_what_matters(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", "80")
    monkeypatch.setenv("NO_COLOR", "1")
    make_failed_job("charge_card", error=GIVEN_UP, updated_at=minutes_ago(3), key="order:4711", queue_name="payments")
    make_job("charge_card", run_at=minutes_ago(-30.5), attempts=7, last_error="TimeoutError: no answer")
    out = _Terminal()
    call_command("graphile_worker", "jobs", stdout=out)
    lines = out.getvalue().splitlines()
    assert all(len(line) <= 80 for line in lines)
    assert "in 30 m  7/25   TimeoutError: " in lines[1]
    assert "3 m ago  2/25   CardStolen: no" in lines[2]


def test_notes__are_no_alarm() -> None:
    err = _Terminal()
    for _ in range(2):
        make_job("a")
    call_command("graphile_worker", "jobs", "--limit", "1", stdout=_Terminal(), stderr=err, force_color=True)
    assert "There are more" in err.getvalue()
    assert "\x1b[" not in err.getvalue()


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
    for part in (str(job_id), "the-key", "mail", "slow", "retrying", '"order": [', "  ValueError: no", "    in line 2"):
        assert part in shown
    told = operate("show", f"#{job_id}", "--json").json
    assert told["payload"] == {"order": [1, 2]}
    assert told["last_error"] == "ValueError: no\n  in line 2"
    assert told["result"]["status"] == "waiting"


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
    execute("update {schema}._private_jobs set payload = %s::json where id = %s", [TOO_DEEP, job_id])
    assert TOO_DEEP in operate("show", str(job_id)).out
    execute("update {schema}._private_jobs set payload = %s::json where id = %s", ['"\\ud800"', job_id])
    assert "\\ud800" in operate("show", str(job_id)).out
    assert operate("show", str(job_id), "--json").json["payload"] == "\ud800"


@pytest.mark.parametrize("typed", ["x", "0", "-1", "1.5", "99999999999999999999"])
def test_ids__that_are_none_are_refused(typed: str) -> None:
    with pytest.raises(CommandError, match=r"expected a job id|unrecognized|arguments are required"):
        operate("show", typed)


def test_show__of_a_job_that_has_succeeded_shows_its_result(worker_schema: str) -> None:
    with connection.cursor() as cursor:
        store_result(cursor, 4711, worker_schema, value={"total": 12})
        cursor.execute(
            f"insert into {in_quotes(worker_schema)}._private_progress values (4711, 1, 7, 7, 'all pages', now())"
        )
    shown = operate("show", "4711").out
    for part in ("succeeded", "7 of 7 (100 %) all pages", '  "total": 12'):
        assert part in shown
    told = operate("show", "#4711", "--json").json
    assert set(told) == {"id", "result"}
    outcome = told["result"]
    assert (outcome["status"], outcome["value"], outcome["progress"]["done"]) == ("succeeded", {"total": 12}, 7)
    assert outcome["attempts"] == []
    assert outcome["finished_at"].endswith("+00:00")


def test_show__of_an_unknown_job_is_an_error() -> None:
    with pytest.raises(CommandError, match=r"^There is no job 4711, and no result of it: .* KEEP_RESULTS says so\.$"):
        operate("show", "4711")


@pytest.fixture
def closed_listeners() -> Iterator[None]:
    yield
    close_listeners()


@pytest.mark.django_db(transaction=True)
def test_wait__ends_after_the_timeout_or_with_the_job(closed_listeners: None) -> None:
    job_id, failed = make_job("export"), make_failed_job(error="ValueError: no\x1b[31m")
    output = operate("show", str(job_id), "--wait", "0.1")
    assert "ready" in output.out
    assert "within 0.1 seconds" in output.err
    operate("show", str(failed))
    with pytest.raises(CommandError, match=rf"^Job {failed} has failed\.$"):
        operate("show", str(failed), "--wait", "5")
    with pytest.raises(CommandError, match=rf"no job {failed + 1}, and no result of it: completed jobs are deleted"):
        operate("show", str(failed + 1), "--wait", "5")


@pytest.fixture
def attempts(settings: Any, worker_schema: str) -> None:
    settings.GRAPHILE_WORKER = {**settings.GRAPHILE_WORKER, "HISTORY": 86_400}
    with connection.cursor() as cursor:
        make_attempt(cursor, worker_schema, 7, outcome=3, error="shop.Broken: no\nTraceback", ended_at=minutes_ago(90))
        make_attempt(cursor, worker_schema, 8, job_key="order-8", queue_name="eu", payload={"order": 4711})


def _attempts(*arguments: str) -> list[int]:
    return [row["job_id"] for row in operate("history", *arguments, "--json").json]


def test_history__is_searched(attempts: None) -> None:
    assert _attempts() == [8, 7]
    assert _attempts("4711") == _attempts("payload:4711") == [8]
    assert _attempts("payload:order-8") == _attempts("payload:4711", "nothing") == []
    assert _attempts("order-8") == _attempts("--key", "order-8") == _attempts("--queue", "eu") == [8]
    assert _attempts("--outcome", "permanently_failed") == [7]
    assert _attempts("--since", "1h") == _attempts("--limit", "1") == [8]
    assert _attempts("--task", "nothing") == []
    assert "Use --limit to list more" in operate("history", "--limit", "1").err


def test_history__has_times_and_outcomes(attempts: None) -> None:
    newest, oldest = operate("history", "--json").json
    assert (newest["outcome"], newest["seconds"], newest["job_key"]) == ("succeeded", 2.0, "order-8")
    assert oldest["error"].startswith("shop.Broken")
    assert "token" not in newest
    output = operate("history")
    assert "permanently_failed" in output.out
    assert " 2 s " in output.out
    assert "Broken: no" in output.out
    assert output.err == ""


def test_words_that_are_not_found__may_be_those_of_payloads_that_are_not_kept(attempts: None, settings: Any) -> None:
    expected = 'only if GRAPHILE_WORKER["HISTORY_PAYLOADS"] was True'
    assert expected in operate("history", "payload:4712", "--json").err
    assert expected not in operate("history", "--task", "nothing").err
    settings.GRAPHILE_WORKER = {**settings.GRAPHILE_WORKER, "HISTORY_PAYLOADS": True}
    assert expected not in operate("history", "4712").err


def test_history_that_is_off__is_explained() -> None:
    output = operate("history")
    assert 'set GRAPHILE_WORKER["HISTORY"]' in output.err
    assert "No attempts." in output.err


def test_errors__are_grouped_by_task_and_class() -> None:
    for number in range(3):
        make_failed_job("send", error=f"shop.errors.Refused: no {number}", updated_at=minutes_ago(number))
    latest = make_job("send", attempts=2, run_at=minutes_ago(-5), last_error="KeyError: 'x'")
    make_job("fine")
    refused, key_error = operate("errors", "--json").json
    assert (refused["error"], refused["failed"], refused["retrying"]) == ("shop.errors.Refused", 3, 0)
    assert (key_error["error"], key_error["retrying"], key_error["latest_job_id"]) == ("KeyError", 1, latest)
    first = operate("errors").out.splitlines()[1]
    assert first.split()[:4] == ["send", "Refused", "3", "0"]
    assert first.endswith("Refused: no 0")
    assert operate("errors", "--task", "fine").err == "No job has failed.\n"
    assert "No job has the task 'sned'. Did you mean 'send'?" in operate("errors", "--task", "sned").err
