"""manage.py graphile_worker workers."""

from __future__ import annotations

import pytest

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
