"""Crontab text: what is read, what is refused and where, and what is written."""

from __future__ import annotations

import json
import math
import time
from datetime import timedelta
from typing import Any

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from django_graphile_worker.crontab import CronItem, CrontabMistake, Draft, format_item, parse_cron_items, parse_crontab
from django_graphile_worker.crontab.parser import MAX_JSON5_LENGTH, Json5Error, parse_json5
from django_graphile_worker.exceptions import CrontabError
from tests.support import crontabs


def _mistakes_in(text: str) -> tuple[CrontabMistake, ...]:
    with pytest.raises(CrontabError) as caught:
        parse_crontab(text)
    return caught.value.mistakes


def test_one_error_has_every_mistake_in_the_order_of_the_text() -> None:
    found = _mistakes_in("61 25 * * * a ?max=x {\n* * * * * b\n* * * * * b\nnonsense")
    assert [(mistake.line, mistake.column) for mistake in found] == [
        (1, 1), (1, 4), (1, 20), (1, 22), (3, 11), (4, 1),
    ]  # fmt: skip


def test_a_duplicate_identifier_names_the_other_line() -> None:
    [mistake] = _mistakes_in("* * * * * b\n0 0 * * * a ?id=b")
    assert (mistake.line, mistake.column, mistake.text) == (2, 17, "b")
    assert "crontab line 1 already has this identifier" in mistake.expected


def test_one_error_has_every_mistake_of_every_item() -> None:
    with pytest.raises(CrontabError) as caught:
        parse_cron_items(
            [
                CronItem("a", "61 24 * * *", max_attempts=0),
                CronItem("b", "* * * * *"),
                CronItem("b", "0 0 * * *"),
                "not an item",  # type: ignore[list-item]
            ]
        )
    assert [mistake.source for mistake in caught.value.mistakes] == [
        "CronItem 1 (a)", "CronItem 1 (a)", "CronItem 1 (a)", "CronItem 4", "CronItem 3 (b)",
    ]  # fmt: skip


def test_schedules_beside_a_task_take_options_and_payload() -> None:
    draft = Draft()
    draft.add_schedules("task", ["0 4 * * * ?fill=1d&tz=Asia/Tokyo {full: true}"], "@task")
    [item] = draft.finish()
    assert (item.name, item.match, item.period) == ("task", "0 4 * * *", timedelta(days=1))
    assert (item.payload, item.time_zone) == ({"full": True}, "Asia/Tokyo")


def test_several_schedules_beside_a_task_are_named_by_their_patterns_unless_they_say_otherwise() -> None:
    draft = Draft()
    draft.add_schedules("task", ["0 4 * * *", "@hourly", "5 5 * * * ?id=five"], "@task")
    assert [item.name for item in draft.finish()] == ["task 0 4 * * *", "task @hourly", "five"]


@pytest.mark.parametrize(
    ("schedule", "expected", "column"),
    [
        ("0 4 * *", "five time fields", 1),
        ("", "five time fields", 1),
        ("0 24 * * *", "an hour from 0 to 23", 3),
        ("0 4 * * * task", "options like ?fill=2d", 11),
        ("@nightly", "one of @hourly", 1),
    ],
)
def test_a_mistake_in_a_schedule_beside_a_task_names_the_task(schedule: str, expected: str, column: int) -> None:
    draft = Draft()
    draft.add_schedules("task", [schedule], "@task(cron=…) of task")
    with pytest.raises(CrontabError) as caught:
        draft.finish()
    [mistake] = caught.value.mistakes
    assert (mistake.source, mistake.line, mistake.column) == ("@task(cron=…) of task", None, column)
    assert expected in mistake.expected


def test_mistakes_in_many_sources_are_sorted_by_source() -> None:
    items = [CronItem("a", "61 * * * *", identifier=f"item{number}") for number in range(1_000)]
    with pytest.raises(CrontabError) as caught:
        parse_cron_items(items)
    assert [mistake.source for mistake in caught.value.mistakes] == [f"CronItem {n} (a)" for n in range(1, 1_001)]


def test_unknown_tasks_are_refused__with_the_name_that_is_closest() -> None:
    draft = Draft()
    draft.add_text("* * * * * reprot ?id=a\n* * * * * reprot ?id=b\n* * * * * zzz", "site.crontab")
    draft.refuse_unknown_tasks({"report"}, iter(["report"]))
    hinted = "the identifier of a registered task (did you mean 'report'?)"
    assert [(mistake.line, mistake.expected) for mistake in draft.mistakes] == [
        (1, hinted), (2, hinted), (3, "the identifier of a registered task"),
    ]  # fmt: skip


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


VALID = [
    ("{}", {}),
    (" { a : 1 , 'b' : [ 2 , ] , \"c\" : { } , } // end", {"a": 1, "b": [2], "c": {}}),
    ("/* before */ {/**/a/**/:/* in */null} /* after */", {"a": None}),
    ("{$: 1, _x: 2, über: 3, a1$: 4, null: 6, true: 7}", {"$": 1, "_x": 2, "über": 3, "a1$": 4, "null": 6, "true": 7}),
    ("[0, +1, 12, 1., .5, 1.5, -2e3, 1E-2, 0x1F]", [0, 1, 12, 1.0, 0.5, 1.5, -2000.0, 0.01, 31]),
    ("[+Infinity, -Infinity]", [math.inf, -math.inf]),
    ("'it\\'s'", "it's"),
    ("'one \\\nline'", "one line"),
    ("'\\x41\\u00fc\\ud83d\\ude00'", "Aü\U0001f600"),
    ("{'\\ud83d\\ude00': 1}", {"\U0001f600": 1}),
    ("{a: 1, a: 2}", {"a": 2}),
    ("{नमस्ते: 1}", {"नमस्ते": 1}),
]
INVALID = [
    ("", 1, 1),
    ("{", 1, 2),
    ("{a:1 b:2}", 1, 6),
    ("{a: 1,\n b: 2 c: 3}", 2, 7),
    ("[1,,2]", 1, 4),
    ("{a:1}}", 1, 6),
    ("undefined", 1, 1),
    ("01", 1, 2),
    ("-'a'", 1, 2),
    ("{a: /* open }", 1, 14),
]


@pytest.mark.parametrize(("text", "value"), VALID)
def test_reads_what_the_standard_allows(text: str, value: Any) -> None:
    assert parse_json5(text) == value


@pytest.mark.parametrize(("text", "line", "column"), INVALID)
def test_refuses_the_rest_and_says_where(text: str, line: int, column: int) -> None:
    with pytest.raises(Json5Error, match=rf"at line {line}, column {column}$"):
        parse_json5(text)


@pytest.mark.parametrize("digits", ["1" * 5000, "0x" + "f" * 5000])
def test_refuses_a_number_with_too_many_digits(digits: str) -> None:
    with pytest.raises(Json5Error, match="4300 digits"):
        parse_json5(f"{{a: {digits}}}")


def test_a_large_payload_of_json_is_read() -> None:
    large = {"a": "x" * 2_000_000}
    [item] = parse_crontab(f"* * * * * task {json.dumps(large)}")
    assert item.payload == large


@pytest.mark.parametrize(
    "text",
    ["{a: '" + "x" * 1_000_000 + "'}", "{a: [" + "1," * 300_000 + "]}", "{" + "a:{" * 100_000 + "}"],
    ids=["string", "array", "nested"],
)
def test_a_large_payload_of_json5_is_refused_at_once(text: str) -> None:
    """The parser would need seconds or minutes for each of these."""
    began = time.process_time()
    with pytest.raises(
        CrontabError, match=f"line 1, column 17: expected JSON, or JSON5 of at most {MAX_JSON5_LENGTH:,}"
    ):
        parse_crontab(f"* * * * * task {text}")
    assert time.process_time() - began < 1


@pytest.mark.parametrize("text", ["{a:" + "[" * 4000 + "]" * 4000 + "}", '{"a":' + "[" * 100_000 + "]" * 100_000 + "}"])
def test_a_payload_that_is_nested_too_deeply_is_refused(text: str) -> None:
    with pytest.raises(CrontabError, match="a payload that is nested less deeply"):
        parse_crontab(f"* * * * * task {text}")


@given(crontabs.items())
@example(CronItem("task", "* * * * *", {"?": "{&"}, "task", timedelta(0), job_key="a&b=c+d %?#é {", flags=("&", "=")))
def test_reading_what_was_written_gives_the_item_back(item: CronItem) -> None:
    assert parse_crontab(format_item(item)) == (item,)


def test_a_callable_cannot_be_written() -> None:
    with pytest.raises(ValueError, match="expected a crontab item with a pattern"):
        format_item(CronItem("task", lambda moment: True))


@given(st.text(max_size=60) | st.lists(st.sampled_from("*/-,0159 \t?{}:='\"aZ@&%\n"), max_size=40).map("".join))
def test_any_text_is_read_or_refused_and_never_crashes(text: str) -> None:
    try:
        items = parse_crontab(text)
    except CrontabError:
        return
    assert all(parse_crontab(format_item(item)) == (item,) for item in items)
