"""The function of the actions on jobs, while other sessions hold the jobs."""

from __future__ import annotations

from collections.abc import Callable
from datetime import timedelta
from typing import Any
from uuid import uuid4

import pytest

from django_graphile_worker.admin import databases
from django_graphile_worker.sql.job_actions import bulk_steps
from django_graphile_worker.sql.job_actions.bulk_steps import Call, Owner
from django_graphile_worker.sql.job_actions.changes import Change
from tests.conftest import RawConnection
from tests.support.factories import minutes_ago
from tests.support.interleaving import Stage
from tests.support.limits import make_key, park_job
from tests.support.operating import execute

pytestmark = pytest.mark.django_db(transaction=True)


@pytest.mark.parametrize(
    "change",
    [
        Change(action="reschedule", run_at=timedelta(hours=1)),
        Change(action="fail"),
        Change(action="run_next", priority=-5),
        Change(action="retry"),
    ],
    ids=lambda change: change.action,
)
def test_parked_job_that_a_claim_holds_for_a_moment__can_be_changed(
    raw_connection: Callable[..., RawConnection], worker_schema: str, change: Change
) -> None:
    due = minutes_ago(10)
    job = park_job(make_key("account:{account}", "account:1"), run_at=due, attempts=2)
    hold = f'select from "{worker_schema}"._private_jobs where id = {job} for update'

    def step(connection: RawConnection) -> Any:
        return bulk_steps.run_step(connection.cursor(), Call(change=change), [job], [job], schema=worker_schema)

    with Stage(raw_connection) as stage:
        operator, claim = stage.session(), stage.session()
        claim.start(lambda connection: connection.execute(f"begin; {hold}")).result()
        result = operator.start(step)
        assert operator.is_waiting
        claim.start(lambda connection: connection.execute("commit")).result()
        assert result.result().ids == [job]
        assert execute("select count(*) from {schema}._private_limited_jobs") == [(0,)]
    ((run_at,),) = execute("select run_at from {schema}._private_jobs")
    assert run_at.year < 9999, "its true time, and not the infinity at which it was parked"


@pytest.mark.parametrize("known", [0, 1])
def test_next_step__takes_one_step_whatever_the_planner_believes(worker_schema: str, known: int) -> None:
    """With the statistics of a table of at most one row, the planner looks for the step once for each row."""
    add = "insert into {schema}._private_action_steps (action_id, number, action, made_by, job_ids) "
    execute(f"{add} select gen_random_uuid(), 0, 'delete', 'other', '{{{{}}}}' from generate_series(1, %s)", [known])
    execute("analyze {schema}._private_action_steps")
    owner = Owner(uuid4(), "delete", "ada")
    execute(f"{add} select %s, n, 'delete', 'ada', array[n] from generate_series(1, 5) as n", [owner.action_id])
    steps = []
    for _ in range(5):
        with databases.writing("default") as (cursor, schema):
            steps.append(bulk_steps.next_step(cursor, owner, schema=schema))
    assert [step and list(step.ids) for step in steps] == [[1], [2], [3], [4], [5]]
