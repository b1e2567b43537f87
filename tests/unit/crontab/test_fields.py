from __future__ import annotations

import pytest

from django_graphile_worker.crontab.errors import MistakeCollector, Position
from django_graphile_worker.crontab.fields import DATE, HOUR, MINUTE, MONTH, WEEKDAY, Field, read_field


@pytest.mark.parametrize(
    ("kind", "text", "values"),
    [
        (MINUTE, "*", tuple(range(60))),
        (MINUTE, "*/20", (0, 20, 40)),
        (MINUTE, "*/99", (0,)),
        (MINUTE, "5,1,3,3,05", (1, 3, 5)),
        (MINUTE, "10-13,58-59", (10, 11, 12, 13, 58, 59)),
        (MINUTE, "1-30/10", (1, 11, 21)),
        (HOUR, "*/5", (0, 5, 10, 15, 20)),
        # Steps count from the smallest value of the field, as the original's do.
        (DATE, "*/10", (1, 11, 21, 31)),
        (MONTH, "*/5", (1, 6, 11)),
        (MONTH, "jan,MAR-May,12", (1, 3, 4, 5, 12)),
        (WEEKDAY, "*/2", (0, 2, 4, 6)),
        (WEEKDAY, "7", (0,)),
        (WEEKDAY, "0,7", (0,)),
        (WEEKDAY, "5-7", (0, 5, 6)),
        (WEEKDAY, "0-7", tuple(range(7))),
        (WEEKDAY, "MON-FRI", (1, 2, 3, 4, 5)),
        (WEEKDAY, "Fri-sun", (0, 5, 6)),
        (WEEKDAY, "sun-tue", (0, 1, 2)),
        (WEEKDAY, "SUN", (0,)),
    ],
)
def test_a_field_stands_for_its_values(kind: Field, text: str, values: tuple[int, ...]) -> None:
    collector = MistakeCollector()
    assert read_field(kind, text, collector, Position()) == values
    assert not collector.mistakes
