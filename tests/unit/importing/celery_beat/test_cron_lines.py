from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from django_graphile_worker.crontab.patterns import Field, parse_pattern
from django_graphile_worker.importing.celery_beat.cron_lines import COLUMNS, cron_line
from django_graphile_worker.importing.celery_beat.unsupported import Unsupported
from tests.support.celery_beat import REASON

crontab = pytest.importorskip("celery.schedules", reason=REASON).crontab
EVERY = dict.fromkeys(COLUMNS, "*")


@st.composite
def parts(draw: st.DrawFn, kind: Field) -> str:
    first, last = draw(st.integers(kind.smallest, kind.largest)), draw(st.integers(kind.smallest, kind.largest))
    step = draw(st.integers(1, 9))
    forms = ["*", str(first), f"{first}-{last}", f"{first}-{last}/{step}", f"*/{step}"]
    if kind.names:
        forms += [f"{next(iter(kind.names)).lower()}-{first}", list(kind.names)[-1].title()]
    return draw(st.sampled_from(forms))


@settings(max_examples=100, deadline=None)
@given(st.data(), st.sampled_from(sorted(COLUMNS)))
def test_field__means_what_it_means_in_celery(data: st.DataObject, column: str) -> None:
    text = ",".join(data.draw(st.lists(parts(COLUMNS[column]), min_size=1, max_size=3)))
    expected = getattr(crontab(**{column: text}), column)
    pattern = parse_pattern(cron_line(EVERY | {column: text}))
    names = {
        "minute": "minutes",
        "hour": "hours",
        "day_of_month": "dates",
        "month_of_year": "months",
        "day_of_week": "weekdays",
    }
    assert set(getattr(pattern, names[column])) == expected


@pytest.mark.parametrize(
    ("fields", "line"),
    [
        ({}, "* * * * *"),
        ({"minute": "*/15", "hour": "9-17", "day_of_week": "mon-fri"}, "*/15 9-17 * * mon-fri"),
        ({"minute": "0, 30"}, "0,30 * * * *"),
        ({"hour": "22-4"}, "* 0-4,22-23 * * *"),
        ({"hour": "22-4/2"}, "* 0,2,4,22 * * *"),
        ({"day_of_week": "monday,thursday"}, "* * * * 1,4"),
        ({"day_of_month": "31", "month_of_year": "january"}, "* * 31 1 *"),
        ({"day_of_month": "1-31", "day_of_week": "mon"}, "* * 1-31 * mon"),
    ],
)
def test_usual_text__is_kept(fields: dict[str, str], line: str) -> None:
    assert cron_line(EVERY | fields) == line


@pytest.mark.parametrize(
    ("fields", "reason"),
    [
        ({"day_of_week": "7"}, "Celery knows no day_of_week '7', so beat never fires it"),
        ({"minute": "60"}, "Celery knows no minute '60'"),
        ({"minute": "x"}, "Celery knows no minute 'x'"),
        ({"minute": "*/0"}, "Celery cannot read minute"),
        ({"minute": ""}, "Celery cannot read minute ''"),
        ({"minute": "5 * * * * *"}, "Celery cannot read minute"),
        ({"day_of_month": "1-7", "day_of_week": "1"}, "a cron line fires on days that match either"),
    ],
)
def test_other_text__is_refused(fields: dict[str, Any], reason: str) -> None:
    with pytest.raises(Unsupported, match=reason):
        cron_line(EVERY | fields)


def test_celery__fires_only_on_days_that_match_both() -> None:
    """The reason why such crontabs are refused."""
    first_mondays = crontab(minute="0", hour="4", day_of_month="1-7", day_of_week="mon")
    first_mondays.nowfun = lambda: datetime(2026, 11, 3, tzinfo=UTC)
    _, seconds = first_mondays.is_due(datetime(2026, 11, 3, tzinfo=UTC))
    assert timedelta(seconds=seconds) == datetime(2026, 12, 7, 4, tzinfo=UTC) - datetime(2026, 11, 3, tzinfo=UTC)
