"""The check of the workers."""

from __future__ import annotations

import pytest
from django.db import connection

from tests.integration.checks.conftest import found
from tests.support.rows import in_quotes


@pytest.mark.django_db
class TestTimeouts:
    def test_workers_with_different_timeouts(self, worker_schema: str) -> None:
        with connection.cursor() as cursor:
            table = f"{in_quotes(worker_schema)}._private_workers"
            cursor.execute(f"insert into {table} (id, timeout_seconds) values ('a', 60), ('b', 60), ('old', null)")
            cursor.execute(f"insert into {table} values ('dead', now() - interval '1 hour', now(), '{{}}', 9, 3)")
            assert found(databases=["default"]) == []
            cursor.execute(f"insert into {table} (id, timeout_seconds) values ('c', 5)")
        (warning,) = found(databases=["default"])
        assert warning.id == "graphile_worker.W006"
        assert warning.msg.endswith("expected all of them to have the same WORKER_TIMEOUT, got 5, 60 seconds.")
