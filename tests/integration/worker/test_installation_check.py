"""The check of the installation before the start."""

from __future__ import annotations

import pytest
from django.test import override_settings

from django_graphile_worker.exceptions import SchemaError
from tests.support.stepped_worker import build, own_tasks

pytestmark = pytest.mark.django_db(transaction=True)


@override_settings(GRAPHILE_WORKER={"SCHEMA": "nowhere"})
def test_says_what_to_do_without_a_schema() -> None:
    with own_tasks() as registry:
        worker = build(registry)
        with pytest.raises(SchemaError, match=r"manage\.py migrate graphile_worker"):
            worker.prepare()
        worker.close()
