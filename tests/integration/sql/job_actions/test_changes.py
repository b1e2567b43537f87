"""The function of the actions on jobs, while other sessions hold the jobs."""

from __future__ import annotations

from collections.abc import Callable
from datetime import timedelta
from typing import Any
from uuid import uuid4

import pytest

from django_graphile_worker.sql.inspection.job_search.criteria import Criteria
from django_graphile_worker.sql.job_actions import bulk_steps, undo
from django_graphile_worker.sql.job_actions.bulk_steps import Call
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
def test_parked_job_that_a_claim_holds_for_a_moment__can_be_changed_and_restored(
    raw_connection: Callable[..., RawConnection], worker_schema: str, change: Change
) -> None:
    """Its true time is stored, and not the infinity at which it was parked: it would never run again."""
    due = minutes_ago(10)
    job = park_job(make_key("account:{account}", "account:1"), run_at=due, attempts=2)
    action_id = uuid4()
    execute(
        "insert into {schema}._private_action_steps (action_id, number, action, made_by, job_ids)"
        " values (%s, 0, %s, '1', %s)",
        [action_id, change.action, [job]],
    )
    hold = f'select from "{worker_schema}"._private_jobs where id = {job} for update'

    def step(connection: RawConnection) -> Any:
        call, of = Call(change=change), Criteria(ids=(job,))
        return bulk_steps.run_step(connection.cursor(), call, of, [job], schema=worker_schema, stored_as=(action_id, 0))

    with Stage(raw_connection) as stage:
        operator, claim = stage.session(), stage.session()
        claim.start(lambda connection: connection.execute(f"begin; {hold}")).result()
        result = operator.start(step)
        assert operator.is_waiting
        claim.start(lambda connection: connection.execute("commit")).result()
        assert result.result().ids == [job]
        assert execute("select count(*) from {schema}._private_limited_jobs") == [(0,)]
        restored = operator.start(lambda each: undo.undo_step(each.cursor(), action_id, 0, schema=worker_schema))
        assert restored.result() == [job]
    assert execute("select run_at, priority, attempts from {schema}._private_jobs") == [(due, 0, 2)]
