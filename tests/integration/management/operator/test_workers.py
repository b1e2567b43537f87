"""``workers``, ``unlock`` and ``sweep``."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import pytest
from django.core.management import CommandError

from django_graphile_worker import signals
from django_graphile_worker.management.operator import workers
from tests.support.factories import make_job, make_queue, minutes_ago
from tests.support.operating import DEAD, LIVE, execute, job_row, make_worker, operate

pytestmark = pytest.mark.django_db


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


def test_workers__are_alive_for_as_long_as_they_promised() -> None:
    make_worker(LIVE, beat=minutes_ago(5))
    make_worker(DEAD, beat=minutes_ago(5))
    make_worker("graphile_worker_rust", beat=minutes_ago(4))
    execute("update {schema}._private_workers set timeout_seconds = 600 where id = %s", [LIVE])
    # Workers of graphile_worker for Rust state none, and have five minutes among themselves.
    execute("update {schema}._private_workers set timeout_seconds = null where id = 'graphile_worker_rust'")
    told = {worker["id"]: worker["state"] for worker in operate("workers", "--json").json}
    assert told == {LIVE: "alive", DEAD: "silent", "graphile_worker_rust": "alive"}


def test_locks__are_shown_and_taken_by_the_worker_whatever_its_claim() -> None:
    job_id = make_job("a", locked_by=f"{DEAD}/17", queue_name="mail")
    make_queue("mail", locked_by=f"{DEAD}/17")
    assert DEAD in operate("show", str(job_id)).out
    assert "/17" not in operate("show", str(job_id)).out + operate("queues").out + operate("workers").out
    assert [worker["id"] for worker in operate("workers", "--json").json] == [DEAD]
    operate("unlock", DEAD)
    assert job_row(job_id, "locked_by") == (None,)


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


def test_unlock__of_a_mistyped_worker_frees_nobody() -> None:
    job_id = make_job("a", locked_by="worker-node")
    with pytest.raises(CommandError, match=r"^No worker was unlocked: .* held by 'worker-nod'\.$"):
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
    monkeypatch.setattr(workers, "pause", fake.pause)
    monkeypatch.setattr(workers, "monotonic", lambda: fake.now)
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
    assert "Unlocked 1 job and 1 queue of dead workers" in said.out
    assert job_row(dead_worker, "locked_by", "attempts") == (None, 1)
    assert execute("select locked_by from {schema}._private_jobs where locked_at is not null") == [(LIVE,)]
    assert execute("select id from {schema}._private_workers") == [(LIVE,)]
    assert recoveries == [("default", (dead_worker,))]
    assert "Nothing to unlock" in operate("sweep").out


def test_sweep__watches_the_silent_for_as_long_as_the_living_need_to_say_so(
    dead_worker: int, fake_time: FakeTime
) -> None:
    said = operate("sweep", "--json")
    assert said.err == "Watching 1 silent worker for 20 s, in case of a heartbeat ...\n"
    assert said.json["dead_worker_ids"] == [DEAD]
    assert fake_time.now == 20


def test_sweep__spares_one_who_was_only_silent_by_a_clock_that_was_set(dead_worker: int, fake_time: FakeTime) -> None:
    """By that clock its last beat is long ago, until its next."""
    fake_time.happenings[9.0] = lambda: execute("update {schema}._private_workers set last_heartbeat_at = now()")
    assert "Nothing to unlock" in operate("sweep").out
    assert fake_time.now == 9, "nobody is left to be watched"
    assert job_row(dead_worker, "locked_by", "attempts") == (DEAD, 2)


def test_sweep__watches_anew_when_it_was_stopped_meanwhile(dead_worker: int, fake_time: FakeTime) -> None:
    """The command's own process was stopped: what happened meanwhile it has not seen."""
    fake_time.happenings[15.0] = lambda: setattr(fake_time, "now", fake_time.now + 3600)
    operate("sweep")
    assert fake_time.now == 3600 + 15 + 20
    assert job_row(dead_worker, "locked_by") == (None,)


@pytest.mark.parametrize("arguments", [("--at-once",), ("--at-once", "--dry-run")])
def test_sweep__watches_nobody_when_told_so(dead_worker: int, fake_time: FakeTime, arguments: tuple[str, ...]) -> None:
    said = operate("sweep", *arguments)
    assert (DEAD in said.out, said.err, fake_time.now) == (True, "", 0)


def test_sweep__has_nobody_to_watch_when_all_have_beaten(fake_time: FakeTime) -> None:
    make_worker(LIVE)
    said = operate("sweep")
    assert ("Nothing to unlock" in said.out, said.err, fake_time.now) == (True, "", 0)


def test_sweep__only_looks_when_asked_to(dead_worker: int, recoveries: list[Any]) -> None:
    told = operate("sweep", "--dry-run", "--json").json
    assert told["job_ids"] == [dead_worker]
    assert told["dead_worker_ids"] == [DEAD]
    assert "Would unlock 1 job and 1 queue" in operate("sweep", "--dry-run").out
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
