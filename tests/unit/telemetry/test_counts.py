"""What is counted of jobs, its way to the supervisor, and the limits of both."""

from __future__ import annotations

import fcntl
import os
import termios
from array import array
from collections.abc import Iterator
from math import inf

import pytest

from django_graphile_worker.telemetry.counts import (
    BUCKETS,
    CLAIMED,
    MAX_NAME,
    MAX_QUEUES,
    OTHER_QUEUES,
    OUTCOMES,
    RETURNED,
    RUN,
    TIMED_OUT,
    WAIT,
    Inbox,
    Outbox,
    Tally,
    buckets,
    measured,
)

KEY = ("default", "send", "")


@pytest.mark.parametrize("durations", [[0.004, 0.005, 0.0051, 7.0, 7.0, 5000.0], [7.0, 8.0], [0.005], [5000.0, 9000.0]])
@pytest.mark.parametrize("waited", [0.0, 20.0, 1e6, -3.0])
def test_measured__puts_each_time_into_its_bucket(durations: list[float], waited: float) -> None:
    now = 1.7e9
    due_at = [now - duration - waited - 0.02 * place for place, duration in enumerate(durations)]
    waits = [max(now - duration - due, 0.0) for duration, due in zip(durations, due_at, strict=True)]
    cell = measured(durations, due_at, now)
    for histogram, times in ((RUN, durations), (WAIT, waits)):
        assert buckets(histogram, cell) == [sum(time <= bound for time in times) for bound in (*BUCKETS, inf)]
        assert cell[f"{histogram} sum"] == pytest.approx(sum(times), abs=1e-5)


def test_tally__has_series_for_some_queues_and_one_for_all_others() -> None:
    tally = Tally()
    for number in range(MAX_QUEUES + 30):
        for _ in range(2):
            tally.add(("default", "send", f"account {number}"), {"succeeded": 1})
    tally.add(KEY, {"succeeded": 5})
    cells = tally.cells()
    assert len(cells) == MAX_QUEUES + 2
    assert cells["default", "send", OTHER_QUEUES] == {"succeeded": 60}
    assert sum(cell["succeeded"] for cell in cells.values()) == 2 * (MAX_QUEUES + 30) + 5


def test_measured__leaves_out_the_wait_of_a_job_that_was_due_for_ever() -> None:
    cell = measured([1.0, 1.0, 9000.0], [-inf, 1.7e9 - 4.0, -inf], 1.7e9)
    assert (buckets(RUN, cell)[-1], buckets(WAIT, cell)[-1], cell["wait sum"]) == (3, 1, 3.0)
    assert measured([1.0], [-inf], 1.7e9)["wait sum"] == 0.0


@pytest.fixture
def pipe() -> Iterator[tuple[int, int]]:
    ends = os.pipe()
    yield ends
    for end in ends:
        os.close(end)


def test_counts__are_in_the_pipe_at_once(pipe: tuple[int, int]) -> None:
    """So they outlive a process that is killed afterwards."""
    tally = Tally()
    inbox, outbox = Inbox(pipe[0], tally), Outbox(pipe[1])
    outbox.add(KEY, {"succeeded": 2, "run sum": 0.1})
    outbox.send({"place": 0})
    outbox.add(KEY, {"succeeded": 1, "run sum": 0.2})
    assert inbox.read() == [{"place": 0}]
    assert tally.cells() == {KEY: {"succeeded": 3, "run sum": pytest.approx(0.3)}}
    assert inbox.read() == []


def test_full_pipe__loses_no_counts(pipe: tuple[int, int]) -> None:
    tally = Tally()
    inbox, outbox = Inbox(pipe[0], tally), Outbox(pipe[1])
    number = 60_000
    for _ in range(number):
        outbox.add(KEY, {"succeeded": 1})
    inbox.read()
    assert 0 < tally.cells()[KEY]["succeeded"] < number
    outbox.flush()
    inbox.read()
    assert tally.cells() == {KEY: {"succeeded": number}}


@pytest.mark.parametrize("character", ["\N{PARTY POPPER}", "\x01", '"', "x"])
def test_line__is_written_as_a_whole(pipe: tuple[int, int], character: str) -> None:
    """The system may tear a line of more than 4096 bytes, and other children write meanwhile."""
    tally = Tally()
    inbox, outbox = Inbox(pipe[0], tally), Outbox(pipe[1])
    name = character * MAX_NAME
    places = range(len(BUCKETS) + 1)
    cell = dict.fromkeys((*OUTCOMES, CLAIMED, RETURNED, TIMED_OUT, "run sum", "wait sum"), 1234567890.1234567)
    cell |= {f"{histogram} {place}": 1234567890.1234567 for histogram in (RUN, WAIT) for place in places}
    outbox.add((name * 4, name, name), cell)
    assert array("i", fcntl.ioctl(pipe[0], termios.FIONREAD, bytes(4)))[0] <= 4096
    inbox.read()
    assert tally.cells() == {(name, name, name): cell}


def test_outbox__survives_the_supervisor() -> None:
    reader, writer = os.pipe()
    outbox = Outbox(writer)
    os.close(reader)
    outbox.add(KEY, {"succeeded": 1})
    os.close(writer)
