from __future__ import annotations

from datetime import timedelta

import pytest

from django_graphile_worker.crontab import CronItem, CrontabMistake, parse_crontab
from django_graphile_worker.exceptions import CrontabError


def mistakes_in(text: str) -> tuple[CrontabMistake, ...]:
    with pytest.raises(CrontabError) as caught:
        parse_crontab(text)
    return caught.value.mistakes


def only_mistake(text: str) -> CrontabMistake:
    [mistake] = mistakes_in(text)
    return mistake


def test_a_full_line_sets_everything() -> None:
    text = (
        "30 4 * * 1 send_weekly_email "
        "?id=weekly&fill=4w3d2h1m&max=10&queue=mail:out&jobKey=a%26b&jobKeyMode=preserve_run_at&priority=-3"
        "&tz=Europe/Paris&flags=slow,remote "
        "{onboarding: false, 'list': [1, 0x10, .5,],}"
    )
    assert parse_crontab(text) == (
        CronItem(
            task="send_weekly_email",
            match="30 4 * * 1",
            payload={"onboarding": False, "list": [1, 16, 0.5]},
            identifier="weekly",
            backfill_period=timedelta(minutes=44_761),
            max_attempts=10,
            queue_name="mail:out",
            priority=-3,
            job_key="a&b",
            job_key_mode="preserve_run_at",
            flags=("slow", "remote"),
            time_zone="Europe/Paris",
        ),
    )


def test_a_bare_line_has_the_task_as_identifier_and_nothing_else() -> None:
    assert parse_crontab("0 */4 * * * rollup") == (CronItem("rollup", "0 */4 * * *", identifier="rollup"),)


def test_comments_blank_lines_and_carriage_returns_are_no_items() -> None:
    text = (
        "\ufeff# a comment\r\n\r\n   \t\n  # another\n  * * * * *   a/b:c-d_e   \r\n* * * * * z ?id=z2 {a: 'x # y'} \n"
    )
    assert [item.task for item in parse_crontab(text)] == ["a/b:c-d_e", "z"]
    assert parse_crontab(text)[1].payload == {"a": "x # y"}
    assert parse_crontab("") == ()


def test_only_a_line_feed_ends_a_line() -> None:
    [item] = parse_crontab("* * * * * a {text: 'one\u2028two\u0085three'}")
    assert item.payload == {"text": "one\u2028two\u0085three"}


@pytest.mark.parametrize(
    ("line", "column", "text", "expected"),
    [
        ("60 * * * * a", 1, "60", "a minute from 0 to 59"),
        ("* 24 * * * a", 3, "24", "an hour from 0 to 23"),
        ("* * 0 * * a", 5, "0", "a day of the month from 1 to 31"),
        ("* * 1,32 * * a", 7, "32", "a day of the month from 1 to 31"),
        ("* * * 13 * a", 7, "13", "a month from 1 to 12 or JAN to DEC"),
        ("* * * FOO * a", 7, "FOO", "a month"),
        ("* * * * 8 a", 9, "8", "a day of the week from 0 to 6 or SUN to SAT"),
        ("5-5 * * * * a", 1, "5-5", "a range whose end is larger than its start"),
        ("1,5-3 * * * * a", 3, "5-3", "a range whose end is larger than its start"),
        ("* * * * 5-0 a", 9, "5-0", "a range whose end is larger"),
        ("*/0 * * * * a", 3, "0", "a step greater than zero"),
        ("1-9/0 * * * * a", 5, "0", "a step greater than zero"),
        ("10/2 * * * * a", 1, "10/2", "a minute from 0 to 59, a range like 1-5, '*' or '*/n'"),
        ("1, * * * * a", 3, "", "a minute"),
        ("-1 * * * * a", 1, "-1", "a minute"),
        ("\u0661 * * * * a", 1, "\u0661", "a minute"),  # an Arabic digit is not a digit here
        (f"{'9' * 5000} * * * * a", 1, "9" * 5000, "a minute from 0 to 59"),
        ("  * * * task", 3, "* * * task", "five time fields"),
        ("* * * * *", 1, "* * * * *", "five time fields"),
        ("0 * * * * * a", 11, "*", "a task identifier"),
        ("* * * * * 9a", 11, "9a", "a task identifier"),
        ("* * * * * a.b", 11, "a.b", "a task identifier"),
        (f"* * * * * {'a' * 129}", 11, "a" * 129, "a task identifier"),
        ("* * * * * a b", 13, "b", "options like ?fill=2d, a payload like {limit: 10}, or the end"),
        ("* * * * * a # comment", 13, "# comment", "options like"),
        ("* * * * * a ?", 13, "?", "options like ?fill=2d"),
        ("* * * * * a {} ?id=b", 13, "{} ?id=b", "a JSON5 object"),
        ("* * * * * a [1]", 13, "[1]", "options like"),
        ("* * * * * a {} x", 13, "{} x", "a JSON5 object"),
        ("* * * * * a {b: }", 17, "}", "JSON5"),
        ("* * * * * a {b: [1, 2}", 22, "}", "JSON5"),
        ("* * * * * a {b: NaN}", 13, "{b: NaN}", "a payload that JSON can hold"),
        (r"* * * * * a {b: '\0'}", 13, r"{b: '\0'}", "a payload without the character"),
        (r"* * * * * a {b: '\ud800'}", 13, r"{b: '\ud800'}", "a payload without half a surrogate pair"),
        ("0 0 30 2 * a", 5, "30", "a day that exists in month 2"),
        ("0 0 31 4,FEB * a", 5, "31", "a day that exists in month 4,FEB"),
        ("@reboot a", 1, "@reboot", "one of @hourly, @daily"),
        ("@daily", 7, "", "a task identifier"),
        ("* * * * * a ?constructor=1", 14, "constructor", "one of the options id, fill, max, queue, jobKey"),
        ("* * * * * a ?jobkey=1", 14, "jobkey", "one of the options"),
        ("* * * * * a ?max=1&max=2", 20, "max=2", "the option 'max' once"),
        ("* * * * * a ?id=1x", 17, "1x", "id to be an identifier"),
        ("* * * * * a ?id", 17, "", "id to be an identifier"),
        ("* * * * * a ?fill=5", 19, "5", "fill to be a time phrase"),
        ("* * * * * a ?fill=99999999999w", 19, "99999999999w", "fill to be a time phrase of at most 100 years"),
        ("* * * * * a ?max=-1", 18, "-1", "max to be a number of attempts from 1 to 32767"),
        ("* * * * * a ?max=0", 18, "0", "max to be a number of attempts from 1 to 32767"),
        ("* * * * * a ?max=32768", 18, "32768", "max to be a number of attempts from 1 to 32767"),
        ("* * * * * a ?queue=a.b", 20, "a.b", "queue to be a queue name"),
        (f"* * * * * a ?queue={'q' * 129}", 20, "q" * 129, "queue to be a queue name of 1 to 128"),
        ("* * * * * a ?jobKey=", 21, "", "jobKey to be a job key of 1 to 512 characters"),
        ("* * * * * a ?jobKey=%00", 21, "%00", "jobKey to be a job key"),
        ("* * * * * a ?jobKeyMode=unsafe_dedupe", 25, "unsafe_dedupe", "'replace' or 'preserve_run_at'"),
        ("* * * * * a ?priority=1.5", 23, "1.5", "priority to be a whole number"),
        ("* * * * * a ?priority=40000", 23, "40000", "priority to be a whole number from -32768"),
        ("* * * * * a ?tz=Paris", 17, "Paris", "did you mean Europe/Paris?"),
        ("* * * * * a ?tz=Europe", 17, "Europe", "an IANA time zone"),
        ("* * * * * a ?tz=../../etc/passwd", 17, "../../etc/passwd", "an IANA time zone"),
        ("* * * * * a ?flags=a,,b", 20, "a,,b", "flags separated by commas"),
    ],
)
def test_a_mistake_names_its_place_the_text_and_what_was_expected(
    line: str, column: int, text: str, expected: str
) -> None:
    mistake = only_mistake(f"# first\n{line}")
    assert (mistake.line, mistake.column, mistake.text) == (2, column, text)
    assert mistake.expected.find(expected) >= 0, mistake.expected
    assert mistake.context == line
    assert line[column - 1 :].startswith(text)


def test_deeply_nested_json_is_a_mistake_not_a_crash() -> None:
    mistake = only_mistake("* * * * * a " + "{a:" * 3000 + "1" + "}" * 3000)
    assert "nested" in mistake.expected
