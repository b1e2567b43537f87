"""All limits of a project, with their numbers."""

from __future__ import annotations

from django_graphile_worker import Limit, task
from django_graphile_worker.limits.definitions import definitions
from django_graphile_worker.registry import tasks


def test_definitions__have_the_numbers_after_the_setting() -> None:
    with tasks.isolated() as registry:
        shared = Limit("account:{account}", concurrency=3, rate="100/m")
        task("a", limit=[shared, Limit(concurrency=1)])(lambda payload: None)
        task("b", limit=shared, fair="{tenant}")(lambda payload: None)
        mine = [each for each in registry if each.identifier in ("a", "b")]
        found = definitions(mine, (("account:{account}", (("concurrency", 9),)), ("unknown", (("rate", "1/s"),))))
    assert [(each.name, str(each.numbers), each.is_fair, each.tasks) for each in found] == [
        ("a", "1 at once", False, ("a",)),
        ("account:{account}", "9 at once, 100/m", False, ("a", "b")),
        ("fair:{tenant}", "no limit", True, ("b",)),
    ]
