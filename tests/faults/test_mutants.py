"""Each deliberate mistake is caught by the test that is there for it. A test that no mistake fails proves nothing."""

from __future__ import annotations

import os
import re
import subprocess
import sys

import pytest

from tests.faults import mutants
from tests.faults.processes import CHECKOUT

# fmt: off
# ruff: noqa: E501 - a line for each
CAUGHT_BY = {
    "a completion does not check the token": "test_death.py::test_silence_past_the_lease__another_takes_over_and_the_late_one_changes_nothing",
    "queues are not exclusive": "test_queues.py::test_queue__that_somebody_took_a_moment_ago__is_left_alone",
    "returned jobs lose an attempt": "test_shutdown.py::test_prefetched_jobs__come_back_with_their_attempt",
    "recovery examines only the register of workers": "test_death.py::test_claim_that_commits_after_its_worker_died__is_recovered",
    "the heartbeat stops before the jobs have ended": "test_shutdown.py::test_heartbeat__goes_on_while_the_worker_drains",
    "the releaser drops results when the connection breaks": "test_crash_points.py::test_running__every_statement_survives_a_cut_before_and_after",
    "the shutdown does not wait for results": "test_shutdown.py::test_result__outlives_a_connection_that_breaks_during_shutdown",
    "the listener does not check that notifications arrive": "test_database_trouble.py::test_silent_listener__is_found_out_and_said",
    "statements have no deadline": "test_database_trouble.py::test_blackholed_statement__meets_its_deadline",
    "returns state the worker but not the claim": "test_queues.py::test_jobs_given_back_in_doubt__are_not_taken_from_their_next_claim",
    "releases of queues state the worker but not the claim": "test_queues.py::test_queue_let_go_in_doubt__is_not_let_go_again_under_new_jobs",
    "lost claims are not searched for": "test_simulation.py::test_simulation__no_seed_loses_a_job_or_runs_one_twice_at_once",
    "the signal handler raises": "test_shutdown.py::test_signal_during_a_statement__leaves_nothing_locked",
    "a job that kills its workers never loses an attempt": "test_death.py::test_poison_job__stops_after_three_deaths_and_its_neighbours_survive",
    "the release of a queue wakes no worker": "test_queues.py::test_one_queue__two_workers_hand_it_over_without_polling",
    "queues that wait to be released do not count as pending work": "test_once.py::test_once__waits_for_a_queue_that_is_just_being_let_go",
    "recovery declares workers dead right after an outage": "test_simulation.py::test_outage__whoever_is_back_first_does_not_bury_the_others",
    "the fetcher sleeps until the next poll": "test_timing.py::test_scheduled_job__starts_at_its_moment",
    "connections to read-only servers are kept": "test_restart.py::test_read_only_server__is_left_for_a_new_connection",
    "processes outlive their supervisor": "test_supervisor.py::test_supervisor__that_is_killed_takes_its_children_along",
    "every process that dies early counts as a failed start": "test_supervisor.py::test_child__that_had_begun_to_work_is_no_failed_start",
    "connections are not checked before and after jobs": "test_restart.py::test_django_connections__work_again_after_a_restart",
    "jobs that still run at the end are not returned": "test_shutdown.py::test_job_that_ignores_everything__is_returned_without_costing_an_attempt",
    "coroutines are never cancelled": "test_shutdown.py::test_coroutine__is_cancelled_after_the_grace_period_and_keeps_its_attempt",
    "running jobs are not informed of the stop": "test_shutdown.py::test_helpers_abort__is_set_at_the_first_signal",
    "callables keep their broken connections": "test_several.py::test_forbidden_flags__as_a_callable_are_asked_at_every_claim_and_may_lose_their_connection",
    "returns ignore that the job was removed or replaced": "test_queues.py::test_list__that_was_replaced_while_it_was_claimed_ahead__runs_when_it_is_given_back",
    "recovery releases a queue before its last job": "test_queues.py::test_recovery_in_parts__keeps_a_queue_until_its_last_job_is_free",
    "a worker applies its own timeout to other workers": "test_simulation.py::test_simulation__under_a_hardship",
    "a claim that stopped early reports that there are no more jobs": "test_queues.py::test_free_queue__behind_a_thousand_held_ones__is_found_without_a_poll",
    "jobs start after the lease has expired": "test_suspension.py::test_jobs_claimed_ahead__do_not_begin_after_the_lease_ran_out",
    "leases do not age while the machine is suspended": "test_suspension.py::test_jobs_claimed_ahead__do_not_begin_after_a_sleep_in_which_the_clock_stood_still",
    "recovered jobs go to the end of the queue": "test_death.py::test_kill__keeps_the_place_in_the_queue",
}
# fmt: on


def test_every_mutant__has_a_test_that_is_there_for_it() -> None:
    assert set(CAUGHT_BY) == mutants.names()


def test_promises_page__names_tests_that_exist_and_every_mistake() -> None:
    page = (CHECKOUT / "docs" / "explanation" / "promises.md").read_text(encoding="utf-8")
    tests = "".join(path.read_text(encoding="utf-8") for path in (CHECKOUT / "tests").rglob("test_*.py"))
    named = set(re.findall(r"`(test_\w+)`", page))
    assert {name for name in named if f"def {name}(" not in tests} == set()
    told = dict(re.findall(r"^\| (.+) \| `(test_\w+)` \|$", page, flags=re.MULTILINE))
    assert told == {mutant: test.split("::")[1] for mutant, test in CAUGHT_BY.items()}


@pytest.mark.chaos
@pytest.mark.timeout(300)
@pytest.mark.parametrize("mutant", sorted(CAUGHT_BY))
def test_mutant__is_caught(mutant: str) -> None:
    environment = {name: value for name, value in os.environ.items() if not name.startswith(("PYTEST_", "TEST_RUN"))}
    finished = subprocess.run(
        [
            sys.executable,
            "-m",
            "pytest",
            "-n0",
            "-x",
            "-q",
            "-p",
            "no:cacheprovider",
            f"tests/faults/{CAUGHT_BY[mutant]}",
        ],
        cwd=CHECKOUT,
        env=environment | {"FAULT_MUTANT": mutant},
        capture_output=True,
        text=True,
        check=False,
    )
    assert finished.returncode == 1, f"survived:\n{finished.stdout[-3000:]}{finished.stderr[-1000:]}"
    assert "1 failed" in finished.stdout
