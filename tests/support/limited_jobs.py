"""Limited jobs on a connection of a test: adds, sorts, claims and ends them with the statements of a worker."""

from __future__ import annotations

import itertools
import json
from collections.abc import Sequence
from typing import Any

import psycopg

from django_graphile_worker.limits import LimitDefinition, LimitNumbers
from django_graphile_worker.sql import limits as statements
from django_graphile_worker.sql import releases
from django_graphile_worker.sql.claims import Claim

TASK = "limited"


class LimitedJobs:
    """The jobs of one limited task. Each keyword is a limit, whose key is the payload field of the same name."""

    def __init__(
        self, connection: psycopg.Connection[Any], schema: str, *, is_fair: bool = False, **limits: dict[str, Any]
    ) -> None:
        self.connection = connection
        self.schema = schema
        self._is_fair = is_fair
        self._limits = tuple(limits)
        self.limit(**limits)
        self._tokens = (f"worker-1/{number}" for number in itertools.count(1))

    def limit(self, **limits: dict[str, Any]) -> None:
        """Use these numbers from now on."""
        self.numbers = statements.parameters_of(
            LimitDefinition(name=name, numbers=LimitNumbers(**numbers), is_fair=False, tasks=(TASK,))
            for name, numbers in limits.items()
        )

    def add(self, count: int = 1, *, options: str = "", **payload: Any) -> None:
        self.execute(
            f"select {{schema}}.add_job(%s, %s{options and ', ' + options}) from pg_catalog.generate_series(1, %s)",
            [TASK, json.dumps(payload), count],
        )

    def add_many(self, count: int, field: str, *, keys: int) -> None:
        """Add jobs whose field has as many different values as there are keys."""
        self.execute(
            """insert into {schema}._private_tasks (identifier) values (%(task)s) on conflict do nothing""",
            {"task": TASK},
        )
        self.execute(
            """insert into {schema}._private_jobs (task_id, payload)
            select %(task_id)s, pg_catalog.json_build_object(%(field)s::text, number %% %(keys)s)
            from pg_catalog.generate_series(1, %(count)s) as number""",
            {"task_id": self.task_id, "field": field, "keys": keys, "count": count},
        )

    @property
    def task_id(self) -> int:
        return int(self.value("select id from {schema}._private_tasks where identifier = %s", TASK))

    def sort(self, most: int = 500) -> int:
        """Sort a batch of due jobs; return how many."""
        with self.connection.cursor() as cursor, self.connection.transaction():
            picked = statements.pick_unsorted(cursor, schema=self.schema, task_ids=[self.task_id], max_jobs=most)
            jobs = [statements.SortedJob(job, self._lane_of(job)) for job in picked.jobs]
            return statements.park(cursor, jobs, schema=self.schema).jobs if jobs else 0

    def pick(self, **options: Any) -> statements.Unsorted:
        """Pick jobs to sort, and leave them as they are."""
        with self.connection.cursor() as cursor, self.connection.transaction(force_rollback=True):
            return statements.pick_unsorted(cursor, schema=self.schema, task_ids=[self.task_id], max_jobs=10, **options)

    def sort_all(self) -> None:
        while self.sort():
            pass

    def claim(self, max_jobs: int = 10, **options: Any) -> statements.LimitedClaimed:
        with self.connection.cursor() as cursor:
            return self.claim_with(cursor, max_jobs, **options)

    def claim_with(self, cursor: Any, max_jobs: int = 10, **options: Any) -> statements.LimitedClaimed:
        return statements.claim_limited(
            cursor,
            schema=self.schema,
            token=next(self._tokens),
            numbers=self.numbers,
            max_jobs=max_jobs,
            **{"expiries": {self.task_id: None}, **options},
        )

    def claim_all(self, max_jobs: int = 10, **options: Any) -> list[Claim]:
        """Claim until nothing is left that may run."""
        claims: list[Claim] = []
        while (claimed := self.claim(max_jobs, **options)).claims or claimed.has_more:
            claims += claimed.claims
        return claims

    def complete(self, claims: Sequence[Claim]) -> None:
        with self.connection.cursor() as cursor:
            releases.complete_jobs(cursor, claims, schema=self.schema)

    def free(self, claims: Sequence[Claim], *queue_ids: int) -> int:
        with self.connection.cursor() as cursor:
            return statements.free_places(cursor, claims, schema=self.schema, queue_ids=queue_ids)

    def end(self, claims: Sequence[Claim]) -> int:
        """Complete the jobs, and free their places; return how many lanes have become ready."""
        self.complete(claims)
        return self.free(claims)

    def close_key(self, name: str, text: str, seconds: float, clock: Any = None) -> None:
        with self.connection.cursor() as cursor:
            statements.close_keys(cursor, [statements.KeyClosing(name, text, seconds)], schema=self.schema, clock=clock)

    def sweep(self) -> int:
        with self.connection.cursor() as cursor:
            return statements.sweep(cursor, schema=self.schema, numbers=self.numbers, after=statements.Swept()).woken

    def forget(self, seconds: float) -> int:
        """Delete what was not used for so long; return the number of statements."""
        with self.connection.cursor() as cursor:
            number, after = 2, None
            while statements.forget_lanes(cursor, schema=self.schema, seconds=seconds):
                number += 1
            while after := statements.forget_keys(
                cursor, schema=self.schema, numbers=self.numbers, seconds=seconds, after=after
            ):
                number += 1
            return number

    def count(self, table: str, condition: str = "true") -> int:
        return int(self.value(f"select count(*) from {{schema}}.{table} where {condition}"))

    def value(self, statement: str, *parameters: Any) -> Any:
        row = self.execute(statement, parameters or None).fetchone()
        assert row is not None
        return row[0]

    def execute(self, statement: str, parameters: Any = None) -> psycopg.Cursor[Any]:
        text = statement.replace("{schema}", f'"{self.schema}"')
        return self.connection.execute(text.encode(), parameters)

    def _lane_of(self, job: statements.UnsortedJob) -> statements.Lane:
        payload = json.loads(job.payload_text)
        keys = tuple((name, str(payload.get(name, ""))) for name in self._limits)
        turn_limit = self._limits[0] if self._is_fair else None
        return statements.Lane(job.task_id, job.queue_id or 0, job.flags_text, turn_limit, keys)


def field_of(claims: Sequence[Claim], field: str) -> list[Any]:
    """Return the value of a payload field of each claim."""
    return [json.loads(claim.payload_text)[field] for claim in claims]
