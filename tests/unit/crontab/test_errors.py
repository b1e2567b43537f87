from __future__ import annotations

import time

import pytest

from django_graphile_worker.crontab import CrontabMistake, parse_crontab
from django_graphile_worker.exceptions import CrontabError


def test_the_error_shows_each_line_with_a_caret_under_the_mistake() -> None:
    with pytest.raises(CrontabError) as caught:
        parse_crontab("\t* 24 * * * a", source="site.crontab")
    assert str(caught.value) == (
        "1 error in the crontab, so nothing of it is scheduled:\n"
        "site.crontab line 1, column 4: expected an hour from 0 to 23, got '24'\n"
        "    \t* 24 * * * a\n"
        "    \t  ^^"
    )


def test_a_long_line_is_shown_around_the_mistake() -> None:
    context = "a" * 1_000 + "bad" + "z" * 1_000
    _, excerpt, carets = str(CrontabMistake("x", "bad", line=1, column=1_001, context=context)).splitlines()
    assert (excerpt[4], excerpt[-1], len(excerpt)) == ("…", "…", 4 + 1 + 400 + 1)
    assert excerpt[carets.index("^") : carets.rindex("^") + 1] == "bad"


@pytest.mark.parametrize("column", [1, 200, 500, 801])
def test_the_carets_stand_under_the_mistake_wherever_it_is(column: int) -> None:
    context = "." * (column - 1) + "bad" + "." * (801 - column)
    _, excerpt, carets = str(CrontabMistake("x", "bad", line=1, column=column, context=context)).splitlines()
    assert excerpt[carets.index("^") : carets.rindex("^") + 1] == "bad"


@pytest.mark.parametrize("option", ["max=1", "unknown=1"])
def test_the_message_about_one_line_grows_with_its_mistakes__not_with_their_square(option: str) -> None:
    def message(count: int) -> str:
        with pytest.raises(CrontabError) as caught:
            parse_crontab("* * * * * task ?" + "&".join([option] * count))
        return str(caught.value)

    begun = time.process_time()
    assert len(message(5_000)) < 6_250_000
    assert time.process_time() - begun < 10
