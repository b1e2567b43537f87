from __future__ import annotations

from datetime import timedelta

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from django_graphile_worker.crontab import CronItem, format_item, parse_crontab
from django_graphile_worker.exceptions import CrontabError
from tests.support import crontabs


@settings(deadline=None)
@given(crontabs.items())
@example(CronItem("task", "* * * * *", {"?": "{&"}, "task", timedelta(0), job_key="a&b=c+d %?#é {", flags=("&", "=")))
def test_reading_what_was_written_gives_the_item_back(item: CronItem) -> None:
    assert parse_crontab(format_item(item)) == (item,)


def test_a_callable_cannot_be_written() -> None:
    with pytest.raises(ValueError, match="expected a crontab item with a pattern"):
        format_item(CronItem("task", lambda moment: True))


@settings(deadline=None)
@given(st.text(max_size=60) | st.lists(st.sampled_from("*/-,0159 \t?{}:='\"aZ@&%\n"), max_size=40).map("".join))
def test_any_text_is_read_or_refused_and_never_crashes(text: str) -> None:
    try:
        items = parse_crontab(text)
    except CrontabError:
        return
    assert all(parse_crontab(format_item(item)) == (item,) for item in items)
