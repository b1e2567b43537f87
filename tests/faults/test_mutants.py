"""Each deliberate mistake makes a test fail. A test that no mistake makes fail proves nothing."""

from __future__ import annotations

import os
import re
import subprocess
import sys

import pytest

from tests.faults import mutants
from tests.faults.processes import CHECKOUT

# fmt: off
# ruff: noqa: E501 - a line for each mutant
CAUGHT_BY = {
    "a completion does not check the token": "test_death.py::test_suspension_past_the_lease__lets_another_worker_run_the_job_and_rejects_the_late_result",
    "queues are not exclusive": "test_queues.py::test_queue_that_another_claim_has_just_locked__is_not_claimed",
    "returned jobs lose an attempt": "test_shutdown.py::test_prefetched_jobs__are_returned_with_their_attempt",
    "recovery examines only the register of workers": "test_death.py::test_claim_that_commits_after_its_worker_died__is_recovered",
    "the heartbeat stops before the jobs have ended": "test_shutdown.py::test_heartbeat__continues_while_the_worker_drains",
    "the releaser drops results when the connection breaks": "test_crash_points.py::test_running_worker__survives_a_cut_before_and_after_each_statement",
    "the shutdown does not wait for results": "test_shutdown.py::test_result__is_stored_although_the_connection_breaks_during_shutdown",
    "the listener does not check that notifications arrive": "test_database_trouble.py::test_listener_without_notifications__is_detected_and_logged",
    "statements have no deadline": "test_database_trouble.py::test_blackholed_statement__is_ended_at_its_deadline",
    "returns state the worker but not the claim": "test_queues.py::test_jobs_whose_return_got_no_answer__are_not_returned_again_after_their_next_claim",
    "releases of queues state the worker but not the claim": "test_queues.py::test_queue_whose_release_got_no_answer__is_not_released_again_after_its_next_claim",
    "lost claims are not searched for": "test_simulation.py::test_simulation__loses_no_job_and_runs_none_twice_at_once",
    "the signal handler raises": "test_shutdown.py::test_signal_during_a_statement__leaves_nothing_locked",
    "a job that kills its workers never loses an attempt": "test_death.py::test_poison_job__fails_permanently_after_three_deaths_and_other_jobs_succeed",
    "the release of a queue wakes no worker": "test_queues.py::test_one_queue__moves_between_two_workers_without_polling",
    "queues that wait to be released do not count as pending work": "test_once.py::test_once__waits_for_a_queue_that_is_being_released",
    "recovery declares workers dead right after an outage": "test_simulation.py::test_outage__makes_the_first_worker_that_reconnects_declare_no_other_dead",
    "the fetcher sleeps until the next poll": "test_timing.py::test_scheduled_job__starts_at_its_time",
    "connections to read-only servers are kept": "test_restart.py::test_read_only_server__is_disconnected_from",
    "processes outlive their supervisor": "test_supervisor.py::test_supervisor_that_is_killed__leaves_no_children",
    "every process that dies early counts as a failed start": "test_supervisor.py::test_child_that_died_after_its_start__is_not_a_failed_start",
    "connections are not checked before and after jobs": "test_restart.py::test_django_connections__work_again_after_a_restart",
    "jobs that still run at the end are not returned": "test_shutdown.py::test_job_that_ignores_the_stop__is_returned_without_costing_an_attempt",
    "coroutines are never cancelled": "test_shutdown.py::test_coroutine__is_cancelled_after_the_grace_period_and_keeps_its_attempt",
    "running jobs are not informed of the stop": "test_shutdown.py::test_helpers_abort__is_set_at_the_first_signal",
    "callables keep their broken connections": "test_several.py::test_forbidden_flags_as_a_callable__are_evaluated_at_every_claim_even_if_its_connection_breaks",
    "returns ignore that the job was removed or replaced": "test_queues.py::test_list_that_was_replaced_while_it_was_prefetched__runs_after_it_was_returned",
    "recovery releases a queue before its last job": "test_queues.py::test_recovery_in_parts__releases_a_queue_with_its_last_job",
    "a worker applies its own timeout to other workers": "test_simulation.py::test_simulation_with_another_fault__loses_no_job_and_runs_none_twice_at_once",
    "a claim that stopped early reports that there are no more jobs": "test_queues.py::test_free_queue_behind_thousands_of_locked_queues__is_found_without_a_poll",
    "jobs start after the lease has expired": "test_suspension.py::test_prefetched_jobs__do_not_start_after_the_lease_has_expired",
    "leases do not age while the machine is suspended": "test_suspension.py::test_prefetched_jobs__do_not_start_after_a_suspension_that_stopped_the_clock",
    "a cancellation between claim and start is lost": "test_cancelling.py::test_job_that_is_cancelled_between_claim_and_start__never_begins",
    "a pause is forgotten by the fast path": "test_pausing.py::test_paused_work__is_not_claimed_by_an_idle_worker",
    "a pause leaves the lock of the job that runs": "test_pausing.py::test_kill_of_the_worker_of_a_paused_queue__leaves_it_paused_and_loses_no_job",
    "recovery revives cancelled jobs": "test_cancelling.py::test_job_whose_worker_is_killed_before_it_is_stopped__is_not_revived",
    "the claim of a limited job is not counted": "test_limits.py::test_limits__hold_over_several_processes",
    "a place of a limit is freed twice": "test_limits.py::test_limits__hold_over_several_processes",
    "a rate forgets its starts": "test_limits.py::test_limits__hold_over_several_processes",
    "recovered jobs go to the end of the queue": "test_death.py::test_kill__keeps_the_place_in_the_queue",
}
# fmt: on


def test_every_mutant__has_a_test() -> None:
    assert set(CAUGHT_BY) == mutants.names()


def test_promises_page__names_tests_that_exist_and_every_mutant() -> None:
    page = (CHECKOUT / "docs" / "explanation" / "promises.md").read_text(encoding="utf-8")
    tests = "".join(path.read_text(encoding="utf-8") for path in (CHECKOUT / "tests").rglob("test_*.py"))
    named = set(re.findall(r"`(test_\w+)`", page))
    assert {name for name in named if f"def {name}(" not in tests} == set()
    listed = dict(re.findall(r"^\| (.+) \| `(test_\w+)` \|$", page, flags=re.MULTILINE))
    assert listed == {mutant: test.split("::")[1] for mutant, test in CAUGHT_BY.items()}


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
