from __future__ import annotations

import pytest

from django_graphile_worker import registry, task
from django_graphile_worker.exceptions import InvalidTypeError
from django_graphile_worker.task_permissions import LONGEST_CODENAME, schedule_codename, valid_schedulable


@pytest.mark.parametrize("value", [True, False, "billing.schedule_reports", "billing.schedule.reports"])
def test_valid_schedulable__takes_yes_no_and_permissions(value: bool | str) -> None:
    assert valid_schedulable(value) == value


@pytest.mark.parametrize("value", [None, 1, "", "schedule_reports", ".codename", "billing.", "a b.c", b"billing.x"])
def test_valid_schedulable__refuses_what_is_no_permission(value: object) -> None:
    with pytest.raises(InvalidTypeError, match=r"expected True, False, or a permission like 'billing\.schedule"):
        valid_schedulable(value)


def test_task__is_not_schedulable_unless_it_says_so() -> None:
    with registry.tasks.isolated():

        @task
        def plain(payload: object) -> None: ...

        @task(schedulable=True)
        def open_to_users(payload: object) -> None: ...

        @task(schedulable="billing.schedule_reports")
        def with_a_permission(payload: object) -> None: ...

    found = (plain.schedulable, open_to_users.schedulable, with_a_permission.schedulable)
    assert found == (False, True, "billing.schedule_reports")


def test_schedule_codename__names_the_task() -> None:
    assert schedule_codename("billing:send") == "schedule:billing:send"


def test_schedule_codename__of_long_identifiers_fits_and_differs() -> None:
    names = {schedule_codename("a" * number) for number in range(80, 129)}
    assert len(names) == 49
    assert max(map(len, names)) == LONGEST_CODENAME
