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
    "completion that does not check the claim": "test_death.py::test_suspension_past_the_lease__lets_another_worker_run_the_job_and_rejects_the_late_result",
    "queues that two claims can lock": "test_queues.py::test_queue_that_another_claim_has_just_locked__is_not_claimed",
    "return that costs an attempt": "test_shutdown.py::test_prefetched_jobs__are_returned_with_their_attempt",
    "recovery that looks only at registered workers": "test_death.py::test_claim_that_commits_after_its_worker_died__is_recovered",
    "heartbeat that stops before the drain": "test_shutdown.py::test_heartbeat__continues_while_the_worker_drains",
    "releaser that drops results when the connection breaks": "test_crash_points.py::test_running_worker__survives_a_cut_before_and_after_each_statement",
    "shutdown that does not wait for results": "test_shutdown.py::test_result__is_stored_although_the_connection_breaks_during_shutdown",
    "listener that trusts LISTEN without a proof": "test_database_trouble.py::test_listener_without_notifications__is_detected_and_logged",
    "statements without a deadline": "test_database_trouble.py::test_blackholed_statement__is_ended_at_its_deadline",
    "returns that state the worker but not its claim": "test_queues.py::test_jobs_whose_return_got_no_answer__are_not_returned_again_after_their_next_claim",
    "queue releases that state the worker but not its claim": "test_queues.py::test_queue_whose_release_got_no_answer__is_not_released_again_after_its_next_claim",
    "lost claims that are not searched for": "test_simulation.py::test_simulation__loses_no_job_and_runs_none_twice_at_once",
    "signal handler that raises": "test_shutdown.py::test_signal_during_a_statement__leaves_nothing_locked",
    "poison jobs without a limit of deaths": "test_death.py::test_poison_job__fails_permanently_after_three_deaths_and_other_jobs_succeed",
    "releases of queues without a notification": "test_queues.py::test_one_queue__moves_between_two_workers_without_polling",
    "releases of queues that do not count as pending": "test_once.py::test_once__waits_for_a_queue_that_is_being_released",
    "workers declared dead right after an outage": "test_simulation.py::test_outage__makes_the_first_worker_that_reconnects_declare_no_other_dead",
    "fetcher that sleeps until the next poll": "test_timing.py::test_scheduled_job__starts_at_its_time",
    "connections to read-only servers that are kept": "test_restart.py::test_read_only_server__is_disconnected_from",
    "children that outlive their supervisor": "test_supervisor.py::test_supervisor_that_is_killed__leaves_no_children",
    "deaths that all count as failed starts": "test_supervisor.py::test_child_that_died_after_its_start__is_not_a_failed_start",
    "connections that are not checked between jobs": "test_restart.py::test_django_connections__work_again_after_a_restart",
    "interrupted jobs that are not returned": "test_shutdown.py::test_job_that_ignores_the_stop__is_returned_without_costing_an_attempt",
    "coroutines that are never cancelled": "test_shutdown.py::test_coroutine__is_cancelled_after_the_grace_period_and_keeps_its_attempt",
    "helpers.abort that is never set": "test_shutdown.py::test_helpers_abort__is_set_at_the_first_signal",
    "callables that keep their broken connections": "test_several.py::test_forbidden_flags_as_a_callable__are_evaluated_at_every_claim_even_if_its_connection_breaks",
    "returns that ignore a cancellation": "test_queues.py::test_list_that_was_replaced_while_it_was_prefetched__runs_after_it_was_returned",
    "recovery that releases queues before their jobs": "test_queues.py::test_recovery_in_parts__releases_a_queue_with_its_last_job",
    "leases with the timeout of the worker that checks them": "test_simulation.py::test_simulation_with_another_fault__loses_no_job_and_runs_none_twice_at_once",
    "limited claims that report no more jobs": "test_queues.py::test_free_queue_behind_a_thousand_locked_queues__is_found_without_a_poll",
    "jobs that start after the lease has expired": "test_suspension.py::test_prefetched_jobs__do_not_start_after_the_lease_has_expired",
    "leases that do not expire while the machine is suspended": "test_suspension.py::test_prefetched_jobs__do_not_start_after_a_suspension_that_stopped_the_clock",
    "recovered jobs that go to the end of the queue": "test_death.py::test_kill__keeps_the_place_in_the_queue",
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
