"""The tests of a module are found under its name.

``tests/unit`` and ``tests/integration`` mirror the package: ``worker/pool/turns.py`` is tested by
``tests/unit/worker/pool/test_turns.py`` or ``tests/integration/worker/pool/test_turns.py``. Tests of the demo site and
of the benchmarks are in the folders ``testproject`` and ``benchmarks`` of either. A test of a capability that several
modules share is in the folder that those modules have in common, and is listed below with the reason.
"""

from __future__ import annotations

from pathlib import Path

CHECKOUT = Path(__file__).resolve().parent.parent.parent
PACKAGE = CHECKOUT / "django_graphile_worker"
BESIDE_THE_PACKAGE = ("testproject", "benchmarks")
MIRRORS = (CHECKOUT / "tests" / "unit", CHECKOUT / "tests" / "integration")

# Canaries for private interfaces of other packages. Each folder may have such a file; tests/docs reads all of them.
CANARIES = "test_private_interfaces.py"

# Paths below tests/, and why no module has this name.
CAPABILITIES = {
    "integration/admin/jobs/actions/test_moving_jobs.py": "actions on all jobs that match, while jobs change states",
    "integration/admin/test_addresses.py": "the permissions of every address of the admin",
    "integration/admin/test_figures.py": "that the numbers of all pages lead to lists of as many jobs",
    "integration/admin/test_links.py": "the links of all pages, for users with few permissions",
    "integration/admin/test_long_table.py": "what all pages read of a table with many jobs",
    "integration/admin/test_security.py": "permissions, redaction and escaping on all pages",
    "integration/admin/test_translation.py": "the translation of all pages",
    "integration/api/test_add_jobs.py": "add_jobs(), the function of api/add.py for many jobs",
    "integration/api/test_notifications.py": "the setting NOTIFY, for all functions",
    "integration/backend/test_moving.py": "a project that moves between this backend and django-tasks-db",
    "integration/backend/test_waiting.py": "results of Django tasks in results/, which knows jobs",
    "integration/management/operator/test_reading_cost.py": "what all lists of the operator command read",
    "integration/sql/cron/test_cron_beside_node.py": "ticks that Node.js workers fire at the same moment",
    "integration/sql/records/test_complete_recorded_in_place.py": "completions of jobs whose rows have moved",
    "integration/sql/schedules/test_firing_plan.py": "the plan of the statement that fires schedules",
    "integration/sql/test_claim_cost.py": "what the claim reads, on each version of PostgreSQL",
    "integration/sql/test_claims_at_once.py": "claims and fast claims beside other transactions",
    "integration/sql/test_complete_in_place.py": "completions of jobs whose rows have moved",
    "integration/sql/test_deadlocks.py": "calls of several SQL functions at the same time",
    "integration/sql/test_hostile_sessions.py": "all SQL functions in sessions with other settings",
    "integration/sql/test_interleavings.py": "all orders of the steps of several SQL functions",
    "integration/sql/test_key_stress.py": "adding and claiming jobs with few job keys",
    "integration/sql/test_notifications.py": "the notifications of all SQL functions",
    "integration/sql/test_release_cost.py": "what releases and recovery read, on each version of PostgreSQL",
    "integration/sql/test_state_machine.py": "all SQL functions against a model of them",
    "integration/sql/test_task_and_queue_names.py": "the names that adding jobs creates and locks",
    "integration/test_fixtures.py": "the fixtures of tests/conftest.py",
    "integration/test_installations.py": "several installations in one project, in all parts",
    "integration/test_naive_times.py": "USE_TZ = False, in all parts",
    "integration/test_newer_schema.py": "a schema that a newer version has changed, in all parts",
    "integration/test_planted_objects.py": "objects of other roles in the search path, in all parts",
    "integration/test_same_actions.py": "each action on jobs through the admin, the API and the command",
    "integration/test_transactions.py": "the API and the routing in transactions",
    "integration/testing/test_django_tasks.py": "tasks of Django Tasks, with all tools for tests",
    "integration/testing/test_limits.py": "jobs of limited tasks, with all tools for tests",
    "integration/testing/test_projects.py": "the tests of projects, under both test runners",
    "integration/testproject/test_demo.py": "the demo: its command, its site and its worker",
    "integration/worker/maintenance/test_cron_simulation.py": "cron and its backlogs with any failures",
    "integration/worker/test_leases.py": "lost leases: heartbeat, fetcher, slot pool and releaser",
    "integration/worker/test_schedule_runs.py": "what is recorded of runs of schedules, whatever ends their jobs",
    "integration/worker/test_sessions.py": "the sessions and statements of an idle worker",
    "integration/worker/test_start_cost.py": "the modules that are loaded before the first job",
    "unit/admin/test_styles.py": "the style sheets of all pages",
    "unit/test_house_rules.py": "rules for all modules",
    "unit/test_layout.py": "rules for all tests",
    "unit/test_packaging.py": "the wheel",
    "unit/test_public_names.py": "the names that the package exports",
    "unit/test_translations.py": "the catalogues of translations, and the words of all texts",
    "unit/test_typing.py": "the types that a type checker sees",
}


def _tests() -> list[tuple[str, Path]]:
    """Return all test modules: the path below ``tests/``, and the path below the folder that mirrors the package."""
    return [
        (path.relative_to(mirror.parent).as_posix(), path.relative_to(mirror))
        for mirror in MIRRORS
        for path in sorted(mirror.rglob("test_*.py"))
    ]


def _folder(test: Path) -> Path:
    """Return the folder that the folder of a test mirrors."""
    return (CHECKOUT if test.parts[0] in BESIDE_THE_PACKAGE else PACKAGE) / test.parent


def _has_module(test: Path) -> bool:
    return (_folder(test) / test.name.removeprefix("test_")).exists()


def test_test_modules__are_named_after_a_module_or_listed_as_a_test_of_a_capability() -> None:
    tests = [(name, test) for name, test in _tests() if test.name != CANARIES]
    assert len(tests) > 200
    assert [name for name, test in tests if not _has_module(test) and name not in CAPABILITIES] == []


def test_test_modules__are_in_a_folder_that_the_package_has() -> None:
    assert [name for name, test in _tests() if not _folder(test).is_dir()] == []


def test_capabilities__are_sorted_and_have_a_test_and_no_module() -> None:
    without_module = {name for name, test in _tests() if not _has_module(test)}
    assert [name for name in CAPABILITIES if name not in without_module] == []
    assert list(CAPABILITIES) == sorted(CAPABILITIES)
