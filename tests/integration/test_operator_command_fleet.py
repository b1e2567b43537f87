"""manage.py graphile_worker: workers, queues, recurring tasks and health."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
from django.core.management import CommandError
from django.utils import timezone

from django_graphile_worker import signals
from django_graphile_worker.management.operator import liveness
from django_graphile_worker.management.operator.verbs import status as health
from django_graphile_worker.management.operator.verbs import status_figures
from django_graphile_worker.sql.inspection import queue_depths
from tests.support.factories import make_failed_job, make_job, make_queue, make_task, minutes_ago
from tests.support.operating import execute, job_row, make_worker, operate

pytestmark = pytest.mark.django_db

DEAD = "django-worker-dead"
LIVE = "django-worker-live"


def test_workers__are_told_by_their_heartbeats() -> None:
    running = [{"job_id": 1, "task": "send_receipt", "started_at": 0}]
    make_worker(LIVE, host="web-1", pid=4711, is_listening=True, running=running)
    make_worker("django-worker-stopping", is_stopping=True)
    make_worker(DEAD, beat=minutes_ago(2))
    make_job("a", locked_by=LIVE)
    make_job("a", locked_by="worker-node", locked_at=minutes_ago(60))
    told = {worker["id"]: worker for worker in operate("workers", "--json").json}
    assert {name: worker["state"] for name, worker in told.items()} == {
        LIVE: "alive",
        "django-worker-stopping": "stopping",
        DEAD: "silent",
        "worker-node": "unregistered",
    }
    assert (told[LIVE]["held_jobs"], told["worker-node"]["held_jobs"], told[DEAD]["held_jobs"]) == (1, 1, 0)
    (line,) = [line for line in operate("workers").out.splitlines() if LIVE in line]
    for part in ("alive", "web-1", "4711", "yes", "send_receipt"):
        assert part in line.split()


def test_workers__whose_metadata_is_anything_are_listed_all_the_same() -> None:
    for number, metadata in enumerate(
        ['"text"', "[1]", '{"running": {}, "host": null, "pid": [1]}', '{"running": [3]}']
    ):
        make_worker(f"w{number}")
        execute("update {schema}._private_workers set metadata = %s where id = %s", [metadata, f"w{number}"])
    assert operate("workers").out.count("alive") == 4


def test_no_workers__says_how_to_start_one() -> None:
    assert "manage.py runworker" in operate("workers").err


def test_queues__tell_holder_and_depth() -> None:
    make_queue("empty")
    make_queue("held", locked_by=LIVE)
    for _ in range(3):
        make_job("a", queue_name="held", run_at=minutes_ago(1))
    make_job("b", queue_name="held", run_at=minutes_ago(-9))
    make_job("b", queue_name="held", locked_by=LIVE)
    make_failed_job("b", queue_name="held")
    held, empty = operate("queues", "--json").json
    assert (held["queue_name"], held["locked_by"], held["waiting"], held["is_capped"]) == ("held", LIVE, 4, False)
    assert (empty["queue_name"], empty["locked_by"], empty["waiting"]) == ("empty", None, 0)
    assert [queue["queue_name"] for queue in operate("queues", "--held", "--json").json] == ["held"]
    assert [queue["queue_name"] for queue in operate("queues", "--queue", "empty", "--json").json] == ["empty"]


def test_queues__are_counted_up_to_a_cap(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(queue_depths, "MOST_COUNTED", 2)
    for _ in range(3):
        make_job("a", queue_name="deep")
    assert "2+" in operate("queues").out.split()


def test_unlock__frees_what_a_stranger_holds() -> None:
    job_id = make_job("a", locked_by="worker-node", queue_name="mail")
    make_queue("mail", locked_by="worker-node")
    said = operate("unlock", "worker-node")
    assert "1 job and 1 queue" in said.out
    assert "no heartbeat" in said.err
    assert job_row(job_id, "locked_by", "locked_at") == (None, None)
    assert execute("select locked_by from {schema}._private_job_queues") == [(None,)]


def test_unlock__refuses_a_worker_that_beats_unless_forced() -> None:
    make_worker(LIVE)
    make_worker(DEAD, beat=minutes_ago(2))
    live_job, dead_job = make_job("a", locked_by=LIVE), make_job("a", locked_by=DEAD)
    with pytest.raises(CommandError, match=rf"{LIVE} \(alive, 1 job.*second time.*--force"):
        operate("unlock", DEAD, LIVE)
    assert (job_row(live_job, "locked_by"), job_row(dead_job, "locked_by")) == ((LIVE,), (DEAD,))
    operate("unlock", DEAD, LIVE, "--force")
    assert (job_row(live_job, "locked_by"), job_row(dead_job, "locked_by")) == ((None,), (None,))


def test_unlock__of_a_mistyped_worker_suggests_and_frees_nobody() -> None:
    job_id = make_job("a", locked_by="worker-node")
    with pytest.raises(CommandError, match=r"got 'worker-nod'.*none unlocked. Did you mean 'worker-node'"):
        operate("unlock", "worker-nod", "worker-node")
    assert job_row(job_id, "locked_by") == ("worker-node",)


class FakeTime:
    """Passes while somebody pauses, and then things may happen."""

    def __init__(self) -> None:
        self.now = 0.0
        self.happenings: dict[float, Callable[[], object]] = {}

    def pause(self, seconds: float) -> None:
        self.now += seconds
        self.happenings.pop(self.now, lambda: None)()


@pytest.fixture
def fake_time(monkeypatch: pytest.MonkeyPatch) -> FakeTime:
    fake = FakeTime()
    monkeypatch.setattr(liveness, "pause", fake.pause)
    monkeypatch.setattr(liveness, "monotonic", lambda: fake.now)
    return fake


@pytest.fixture
def dead_worker(fake_time: FakeTime) -> int:
    """A dead worker's job, on its second attempt."""
    make_worker(DEAD, beat=minutes_ago(2))
    make_worker(LIVE)
    make_queue("mail", locked_by=DEAD, locked_at=minutes_ago(3))
    make_job("live", locked_by=LIVE)
    return make_job("a", locked_by=DEAD, attempts=2, locked_at=minutes_ago(3), queue_name="mail")


@pytest.fixture
def recoveries() -> Iterator[list[Any]]:
    heard: list[Any] = []

    def receiver(**arguments: Any) -> None:
        heard.append((arguments["database"], arguments["job_ids"]))

    signals.jobs_recovered.connect(receiver)
    yield heard
    signals.jobs_recovered.disconnect(receiver)


def test_sweep__takes_back_what_the_dead_hold_and_nothing_else(dead_worker: int, recoveries: list[Any]) -> None:
    said = operate("sweep")
    assert DEAD in said.out
    assert "Freed 1 job and 1 queue of dead workers" in said.out
    assert job_row(dead_worker, "locked_by", "attempts") == (None, 1)
    assert execute("select locked_by from {schema}._private_jobs where locked_at is not null") == [(LIVE,)]
    assert execute("select id from {schema}._private_workers") == [(LIVE,)]
    assert recoveries == [("default", (dead_worker,))]
    assert "Nothing to free" in operate("sweep").out


def test_sweep__watches_the_silent_for_as_long_as_the_living_need_to_say_so(
    dead_worker: int, fake_time: FakeTime
) -> None:
    said = operate("sweep", "--json")
    assert said.err == "Watching 1 silent worker for 20 s, in case of a beat after all ...\n"
    assert said.json["dead_worker_ids"] == [DEAD]
    assert fake_time.now == 20


def test_sweep__spares_one_who_was_only_silent_by_a_clock_that_was_set(dead_worker: int, fake_time: FakeTime) -> None:
    """By that clock its last beat is long ago, until its next."""
    fake_time.happenings[9.0] = lambda: execute("update {schema}._private_workers set last_heartbeat_at = now()")
    assert "Nothing to free" in operate("sweep").out
    assert fake_time.now == 9, "nobody is left to be watched"
    assert job_row(dead_worker, "locked_by", "attempts") == (DEAD, 2)


def test_sweep__watches_anew_when_it_was_stopped_meanwhile(dead_worker: int, fake_time: FakeTime) -> None:
    """The command's own process was stopped: what happened meanwhile it has not seen."""
    fake_time.happenings[15.0] = lambda: setattr(fake_time, "now", fake_time.now + 3600)
    operate("sweep")
    assert fake_time.now == 3600 + 15 + 20
    assert job_row(dead_worker, "locked_by") == (None,)


def test_status__tells_of_workers_with_different_timeouts() -> None:
    make_worker(LIVE)
    make_worker("django-worker-other")
    assert "worker timeouts" not in operate("status").out
    execute("update {schema}._private_workers set timeout_seconds = case id when %s then 60 else 6 end", [LIVE])
    assert re.search(r"worker timeouts\W+6 s, 60 s", operate("status").out)
    assert operate("status", "--json").json["workers"]["timeouts"] == [6.0, 60.0]


def test_workers__are_alive_for_as_long_as_they_promised() -> None:
    make_worker(LIVE, beat=minutes_ago(5))
    make_worker("django-worker-old", beat=minutes_ago(5))
    execute("update {schema}._private_workers set timeout_seconds = 600 where id = %s", [LIVE])
    told = {worker["id"]: worker["state"] for worker in operate("workers", "--json").json}
    assert told == {LIVE: "alive", "django-worker-old": "silent"}


def test_locks__are_shown_and_taken_by_the_worker_whatever_its_claim() -> None:
    job_id = make_job("a", locked_by=f"{DEAD}/17", queue_name="mail")
    make_queue("mail", locked_by=f"{DEAD}/17")
    assert DEAD in operate("show", str(job_id)).out
    assert "/17" not in operate("show", str(job_id)).out + operate("queues").out + operate("workers").out
    assert [worker["id"] for worker in operate("workers", "--json").json] == [DEAD]
    operate("unlock", DEAD)
    assert job_row(job_id, "locked_by") == (None,)


@pytest.mark.parametrize("arguments", [("--at-once",), ("--at-once", "--dry-run")])
def test_sweep__watches_nobody_when_told_so(dead_worker: int, fake_time: FakeTime, arguments: tuple[str, ...]) -> None:
    said = operate("sweep", *arguments)
    assert (DEAD in said.out, said.err, fake_time.now) == (True, "", 0)


def test_sweep__has_nobody_to_watch_when_all_have_beaten(fake_time: FakeTime) -> None:
    make_worker(LIVE)
    said = operate("sweep")
    assert ("Nothing to free" in said.out, said.err, fake_time.now) == (True, "", 0)


def test_sweep__only_looks_when_asked_to(dead_worker: int, recoveries: list[Any]) -> None:
    told = operate("sweep", "--dry-run", "--json").json
    assert told["job_ids"] == [dead_worker]
    assert told["dead_worker_ids"] == [DEAD]
    assert "Would free 1 job and 1 queue" in operate("sweep", "--dry-run").out
    assert job_row(dead_worker, "locked_by", "attempts") == (DEAD, 2)
    assert len(execute("select id from {schema}._private_workers")) == 2
    assert recoveries == []


def test_sweep__frees_the_stale_locks_of_strangers() -> None:
    stale = make_job("a", locked_by="worker-node", locked_at=minutes_ago(241))
    fresh = make_job("a", locked_by="worker-node", locked_at=minutes_ago(239))
    assert operate("sweep", "--json").json["stale_jobs"] == 1
    assert (job_row(stale, "locked_by"), job_row(fresh, "locked_by")) == ((None,), ("worker-node",))


def test_sweep__tells_of_a_stranger_s_job_that_has_no_attempt_left(caplog: pytest.LogCaptureFixture) -> None:
    held: dict[str, Any] = {"locked_at": minutes_ago(241), "updated_at": minutes_ago(300)}
    job_id = make_job("a", attempts=1, max_attempts=1, locked_by="worker-node", **held)
    operate("sweep", "--dry-run")
    assert "permanently failed" not in caplog.text
    operate("sweep")
    assert f"a #{job_id} permanently failed" in caplog.text


def test_cleanup__deletes_what_is_asked_for_and_no_more() -> None:
    old = make_failed_job("a", run_at=minutes_ago(60 * 24 * 8), updated_at=minutes_ago(60 * 24 * 8))
    new = make_failed_job("a", run_at=minutes_ago(60), updated_at=minutes_ago(60))
    make_queue("unused")
    make_task("unused")
    assert operate("cleanup", "--permanently-failed-older-than", "7d", "--json").json == {
        "jobs": 1,
        "queues": 0,
        "tasks": 0,
        "is_complete": True,
    }
    assert (job_row(old, "id"), job_row(new, "id")) == (None, (new,))
    assert "Deleted 0 jobs, 1 queue name, 0 task names." in operate("cleanup", "--queues").out
    assert operate("cleanup", "--tasks", "--json").json["tasks"] == 1


def test_cleanup__of_nothing_is_an_error() -> None:
    with pytest.raises(CommandError, match="got none of them"):
        operate("cleanup")
    with pytest.raises(CommandError, match="expected a time phrase"):
        operate("cleanup", "--permanently-failed-older-than", "week")


CRONTAB = "0 4 * * 1-5 send_receipt ?id=receipts&fill=2d&tz=Asia/Tokyo {order: 1}"


def test_crontab__tells_pattern_zone_next_times_and_the_last(settings: Any) -> None:
    settings.GRAPHILE_WORKER = settings.GRAPHILE_WORKER | {"CRONTAB": CRONTAB}
    last = datetime(2026, 1, 5, 19, 0, tzinfo=UTC)
    execute("insert into {schema}._private_known_crontabs values ('receipts', %s, %s)", [minutes_ago(9), last])
    execute("insert into {schema}._private_known_crontabs values ('of-node', %s, null)", [minutes_ago(9)])
    told = operate("crontab", "--json").json
    (item,) = [item for item in told["items"] if item["identifier"] == "receipts"]
    times = [datetime.fromisoformat(moment) for moment in item["next"]]
    assert len(times) == 5
    assert all(moment.hour == 19 and moment.minute == 0 and moment.weekday() in {6, 0, 1, 2, 3} for moment in times)
    assert times == sorted(set(times))
    assert datetime.fromisoformat(item["last_execution"]) == last
    assert (item["time_zone"], item["backfill_seconds"]) == ("Asia/Tokyo", 2 * 86_400)
    assert [other["identifier"] for other in told["others"]] == ["of-node"]
    with timezone.override("Asia/Tokyo"):
        shown = operate("crontab", "--next", "1").out
    assert "Monday to Friday (Asia/Tokyo)" in shown
    assert "2026-01-06 04:00:00" in shown
    assert " 04:00:00 (in " in shown


def test_crontab__with_mistakes_tells_them(settings: Any, tmp_path: Path) -> None:
    settings.GRAPHILE_WORKER = settings.GRAPHILE_WORKER | {"CRONTAB": "61 * * * * send_receipt"}
    with pytest.raises(CommandError, match="61"):
        operate("crontab")
    settings.GRAPHILE_WORKER = settings.GRAPHILE_WORKER | {"CRONTAB": ""}
    file = tmp_path / "crontab"
    file.write_text("5 * * * * send_receipt ?id=from-file", encoding="utf-8")
    items = operate("crontab", "--crontab", str(file), "--json").json["items"]
    assert "from-file" in {item["identifier"] for item in items}


def test_status__counts_every_state() -> None:
    make_job("a", run_at=minutes_ago(3))
    make_job("a", run_at=minutes_ago(1), priority=-5)
    make_job("a", run_at=minutes_ago(-5))
    make_job("a", run_at=minutes_ago(-5), attempts=1)
    make_job("a", locked_by=LIVE)
    make_failed_job("a")
    make_worker(LIVE, is_listening=True)
    make_worker(DEAD, beat=minutes_ago(2))
    told = operate("status", "--json").json
    counts = {state: count["count"] for state, count in told["jobs"].items()}
    assert counts == {"ready": 2, "scheduled": 1, "running": 1, "retrying": 1, "failed": 1}
    assert told["oldest_ready_seconds"] == pytest.approx(180, abs=10)
    assert told["workers"] == {
        "alive": 1,
        "stopping": 0,
        "silent": 1,
        "unregistered": 0,
        "listening": 1,
        "timeouts": [],
    }
    shown = operate("stats").out
    assert "ready               2, the oldest for 3 m" in shown
    assert "permanently failed  1" in shown


def test_status__counts_up_to_a_cap_and_says_so(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(status_figures, "CAP", 2)
    for _ in range(4):
        make_job("a")
    assert operate("status", "--json").json["jobs"]["ready"] == {
        "count": 2,
        "is_capped": True,
        "earliest": operate("jobs", "--json").json[-1]["run_at"],
    }
    assert "2+" in operate("status").out


def test_status__tells_the_earliest_time_of_each_state() -> None:
    times = {minutes: minutes_ago(minutes) for minutes in (-60, -5, 5, 60)}
    for when in times.values():
        make_job("a", run_at=when, priority=-int(when.timestamp()) % 3)
        make_job("a", run_at=when, attempts=1)
        make_job("a", locked_by="worker-1", locked_at=when)
        make_failed_job("a", updated_at=when, run_at=times[5])
    told = {state: about["earliest"] for state, about in operate("status", "--json").json["jobs"].items()}
    expected = {"ready": 60, "scheduled": -5, "running": 60, "retrying": -5, "failed": 60}
    assert {state: datetime.fromisoformat(told[state]) for state in told} == {
        state: times[minutes] for state, minutes in expected.items()
    }


def _ailments(*arguments: str) -> str:
    try:
        operate("status", "--check", *arguments)
    except CommandError as error:
        return str(error)
    return ""


def test_check__fails_for_each_reason_and_passes_without_one() -> None:
    assert "0 workers alive instead of 1" in _ailments()
    assert _ailments("--min-workers", "0") == ""
    make_worker(LIVE)
    assert _ailments() == ""
    assert "1 worker alive instead of 2" in _ailments("--min-workers", "2")
    job_id = make_job("a", run_at=minutes_ago(6))
    assert f"got: a #{job_id} has been ready for 6 m, longer than 5m." in _ailments()
    assert _ailments("--max-age", "10m") == ""
    operate("fail", str(job_id))
    assert _ailments() == ""
    assert "1 permanently failed job, more than 0" in _ailments("--max-failed", "0")
    assert _ailments("--max-failed", "1") == ""
    make_worker(DEAD, beat=minutes_ago(2))
    assert _ailments() == ""
    make_job("a", locked_by=DEAD)
    assert "1 silent worker holds jobs" in _ailments()


def test_check__does_not_mistake_future_jobs_for_late_ones() -> None:
    make_worker(LIVE)
    make_job("a", run_at=datetime.now(UTC) + timedelta(days=400))
    assert _ailments() == ""


class TestPausing:
    LAST = datetime(2026, 1, 5, 19, 0, tzinfo=UTC)

    @pytest.fixture(autouse=True)
    def _known_item(self, settings: Any) -> None:
        settings.GRAPHILE_WORKER = settings.GRAPHILE_WORKER | {"CRONTAB": CRONTAB}
        execute("insert into {schema}._private_known_crontabs values ('receipts', %s, %s)", [minutes_ago(9), self.LAST])

    def item(self) -> dict[str, Any]:
        (item,) = [each for each in operate("crontab", "--json").json["items"] if each["identifier"] == "receipts"]
        return dict(item)

    def test_crontab__pauses_an_item_and_keeps_its_last_run(self) -> None:
        assert operate("crontab", "--pause", "receipts").out == "receipts is paused.\n"
        item = self.item()
        assert (item["is_paused"], item["next"]) == (True, [])
        assert datetime.fromisoformat(item["last_execution"]) == self.LAST
        shown = operate("crontab").out
        assert "2026-01-05" in shown
        assert "paused; --resume receipts has it fired again" in shown
        assert execute("select last_execution = 'infinity' from {schema}._private_known_crontabs") == [(True,)]
        assert operate("crontab", "--pause", "receipts").err == "receipts was paused already.\n"
        assert datetime.fromisoformat(self.item()["last_execution"]) == self.LAST

    def test_crontab__resumes_an_item_from_now_on(self) -> None:
        operate("crontab", "--pause", "receipts")
        assert operate("crontab", "--resume", "receipts").out == "receipts is fired again, from now on.\n"
        item = self.item()
        assert (item["is_paused"], len(item["next"])) == (False, 5)
        assert datetime.fromisoformat(item["last_execution"]) == self.LAST
        assert datetime.fromisoformat(item["known_since"]) > minutes_ago(1)
        assert operate("crontab", "--resume", "receipts").err == "receipts was not paused.\n"

    def test_crontab__resumes_what_was_paused_by_hand(self) -> None:
        execute("update {schema}._private_known_crontabs set last_execution = 'infinity'")
        assert "not known any more" in operate("crontab").out
        said = operate("crontab", "--resume", "receipts", "--json").json
        assert said == {"identifier": "receipts", "is_paused": False, "was_changed": True}
        assert self.item()["last_execution"] is None

    def test_crontab__knows_no_such_item(self) -> None:
        with pytest.raises(CommandError, match=r"got 'reciepts'\. Did you mean 'receipts'\?"):
            operate("crontab", "--pause", "reciepts")

    def test_crontab__says_where_the_items_are_listed(self) -> None:
        with pytest.raises(CommandError, match=r"got 'xyz'\. graphile_worker crontab lists the items\.$"):
            operate("crontab", "--pause", "xyz")

    def test_crontab__of_an_item_that_no_worker_has_had_says_so(self) -> None:
        execute("delete from {schema}._private_known_crontabs")
        with pytest.raises(CommandError, match=r"got 'receipts'\. It is in the crontab of this project, but no worker"):
            operate("crontab", "--pause", "receipts")

    def test_crontab__does_not_claim_a_run_for_a_paused_item_that_never_ran(self) -> None:
        execute("update {schema}._private_known_crontabs set last_execution = null")
        operate("crontab", "--pause", "receipts")
        assert "never, or not known any more" in operate("crontab").out


def test_check__names_the_job_that_no_worker_can_run() -> None:
    make_worker(LIVE, tasks=["send_receipt"])
    job_id = make_job("send_recipt", run_at=minutes_ago(7))
    make_job("send_receipt", run_at=minutes_ago(6))
    problem = f"send_recipt #{job_id} has been ready for 7 m (no live worker has this task), longer than 5m"
    assert _ailments() == f"Expected a healthy queue, got: {problem}."
    assert "send_receipt #" in _ailments("--task", "send_receipt")
    assert _ailments("--task", "send_receipt", "--max-age", "10m") == ""


def test_status__tells_tasks_that_jobs_wait_for_and_no_live_worker_has() -> None:
    make_worker(LIVE, tasks=["send_receipt"])
    make_worker(DEAD, beat=minutes_ago(2), tasks=["lost"])
    make_job("send_receipt")
    mistyped = make_job("send_recipt")
    lost = make_job("lost", queue_name="q", run_at=minutes_ago(-60))
    make_failed_job("given_up")
    told = operate("status", "--json").json["tasks_without_worker"]
    assert told == [{"identifier": "send_recipt", "job_id": mistyped}, {"identifier": "lost", "job_id": lost}]
    expected = f"no worker has       send_recipt (#{mistyped} waits for it), lost (#{lost} waits for it)"
    assert expected in operate("status").out


@pytest.mark.parametrize("metadata", [None, {}, {"tasks": "all"}])
def test_status__does_not_guess_what_a_worker_has_that_does_not_say(metadata: dict[str, Any] | None) -> None:
    make_job("a")
    if metadata is not None:
        make_worker(LIVE, tasks=["b"])
        make_worker("django-worker-other", **metadata)
    assert operate("status", "--json").json["tasks_without_worker"] == []


def _make_statistics(task: str, minutes: float, **counts: Any) -> None:
    row = {"succeeded": 0, "failed": 0, "permanently_failed": 0, "duration_seconds": 0.0} | counts
    for period, name in ((60, task), (60, ""), (600, task)):
        execute(
            "insert into {schema}._private_statistics (period_seconds, started_at, task_identifier, succeeded, failed,"
            " permanently_failed, interrupted, duration_seconds, wait_seconds, durations, waits)"
            " values (%s, %s, %s, %s, %s, %s, 0, %s, 0, '{}', '{}')",
            [period, minutes_ago(minutes), name, *row.values()],
        )


def test_status__tells_what_was_done_lately() -> None:
    _make_statistics("a", 2, succeeded=50, failed=2, permanently_failed=1)
    _make_statistics("a", 9, succeeded=1000)
    assert operate("status", "--json").json["recent"] == {"minutes": 5, "succeeded": 50, "failed": 3}
    assert "last 5 minutes      50 succeeded (10 a minute), 3 failed" in operate("status").out
    assert operate("status", "--json", "--task", "b").json["recent"]["succeeded"] == 0


def test_status__of_a_task_counts_its_jobs_alone() -> None:
    for task in ("a", "b", "b"):
        make_job(task, run_at=minutes_ago(2))
        make_failed_job(task)
    told = operate("status", "--json", "--task", "a").json
    assert (told["jobs"]["ready"]["count"], told["jobs"]["failed"]["count"]) == (1, 1)
    assert told["oldest_ready_job"]["task_identifier"] == "a"


def test_status__of_a_task_names_no_other_task_without_a_worker() -> None:
    make_worker(LIVE, tasks=["send_receipt"])
    make_job("send_recipt")
    make_job("lost")
    told = operate("status", "--json", "--task", "lost").json["tasks_without_worker"]
    assert [task["identifier"] for task in told] == ["lost"]


def test_status__of_a_mistyped_task_suggests_the_right_one() -> None:
    make_job("send_receipt")
    said = operate("status", "--check", "--min-workers", "0", "--task", "send_recipt")
    assert said.err == "No job has the task 'send_recipt'. Did you mean 'send_receipt'?\n"


def test_watch__shows_the_queue_until_it_is_interrupted(monkeypatch: pytest.MonkeyPatch) -> None:
    pauses: list[float] = []

    def pause(seconds: float) -> None:
        pauses.append(seconds)
        make_job("a")
        if len(pauses) == 3:
            raise KeyboardInterrupt

    monkeypatch.setattr(health, "pause", pause)
    lines = [line for line in operate("status", "--watch", "0.5").out.splitlines() if line.startswith("ready")]
    assert [line.split()[1].strip(",") for line in lines] == ["0", "1", "2"]
    assert pauses == [0.5] * 3


@pytest.mark.parametrize("other", ["--check", "--json"])
def test_watch__is_for_people(other: str) -> None:
    with pytest.raises(CommandError, match=r"^--watch: expected a screen"):
        operate("status", "--watch", other)


def test_tasks__count_a_failed_job_that_is_due_again_as_ready_alone() -> None:
    make_job("a", attempts=1, run_at=minutes_ago(1))
    make_job("a", attempts=1, run_at=minutes_ago(-1))
    (told,) = [task for task in operate("tasks", "--json").json if task["task_identifier"] == "a"]
    assert (told["ready"], told["retrying"]) == (1, 1)


def test_tasks__tell_what_waits_who_has_it_and_how_it_went() -> None:
    make_worker(LIVE, tasks=["send_receipt", "resize_photo"])
    make_worker("django-worker-other", tasks=["send_receipt"])
    make_worker(DEAD, beat=minutes_ago(2), tasks=["send_receipt"])
    make_job("send_receipt", run_at=minutes_ago(3))
    make_job("typo", run_at=minutes_ago(-5), attempts=1)
    make_failed_job("send_receipt")
    make_task("forgotten")
    _make_statistics("send_receipt", 2, succeeded=3, failed=1, duration_seconds=2.0)
    told = {task["task_identifier"]: task for task in operate("tasks", "--json").json}
    assert "forgotten" not in told
    assert told["typo"] | {"live_workers": 0, "retrying": 1, "is_in_this_project": False} == told["typo"]
    receipt = told["send_receipt"]
    assert (receipt["live_workers"], receipt["ready"], receipt["failed"]) == (2, 1, 1)
    assert (receipt["succeeded"], receipt["failures"], receipt["mean_seconds"]) == (3, 1, 0.5)
    assert told["resize_photo"]["is_in_this_project"]
    (line,) = [line for line in operate("tasks").out.splitlines() if line.startswith("send_receipt ")]
    assert line.split() == ["send_receipt", "2", "1", "3", "m", "-", "1", "4", "1", "500", "ms"]
