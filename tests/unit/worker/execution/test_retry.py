"""When a failed job is tried again, and the text that it keeps."""

from __future__ import annotations

import re
from dataclasses import dataclass
from datetime import timedelta
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from django_graphile_worker.exceptions import ConfigurationError, PayloadError, PermanentFailure, RetryLater
from django_graphile_worker.jobs import attempts_made
from django_graphile_worker.logs.errors import cut, describe, redacted_and_cut
from django_graphile_worker.signals import job_permanently_failed
from django_graphile_worker.worker.execution.retry import MAX_DELAY
from tests.support.slot import Slot, make_task, open_slot


def breaks(payload: Any) -> None:
    raise ValueError("boom")


@pytest.mark.parametrize(
    ("answer", "delay"),
    [(12, 12.0), (0, 0.0), (1.5, 1.5), (timedelta(minutes=2), 120.0), (None, None), (float("inf"), MAX_DELAY)],
)
def test_backoff_callable__may_give_seconds_a_timedelta_or_none(slot: Slot, answer: Any, delay: float | None) -> None:
    outcome = slot.failure(make_task(breaks, backoff=lambda attempts, error: answer))
    assert outcome.delay == delay
    assert "usual back-off" not in outcome.error


@pytest.mark.parametrize("answer", [-1, "soon", True, float("nan"), timedelta(seconds=-1)])
def test_backoff_that_makes_no_sense__is_replaced_by_the_usual_and_the_error_says_so(slot: Slot, answer: Any) -> None:
    outcome = slot.failure(make_task(breaks, backoff=lambda attempts, error: answer))
    assert outcome.delay is None
    assert outcome.error.startswith("ValueError: boom")
    assert "The usual back-off is used" in outcome.error


@pytest.mark.parametrize("mistake", [ZeroDivisionError("oops"), SystemExit("oops")])
def test_backoff_that_raises__is_replaced_by_the_usual_and_the_error_says_so(
    slot: Slot, mistake: BaseException
) -> None:
    def backoff(attempts: int, error: BaseException) -> float:
        raise mistake

    outcome = slot.failure(make_task(breaks, backoff=backoff))
    assert outcome.delay is None
    summary = f"{type(mistake).__name__}: oops"
    assert f"The usual back-off is used, as the task's own back-off failed: {summary}" in outcome.error


def test_retry_later__goes_before_backoff(slot: Slot) -> None:
    def later(payload: Any) -> None:
        raise RetryLater(7)

    assert slot.failure(make_task(later, backoff=timedelta(hours=1))).delay == 7.0


def group(*errors: BaseException) -> Any:
    def task(payload: Any) -> None:
        raise BaseExceptionGroup("several", errors)

    return task


def test_group_of_permanent_failures_alone__is_permanent(slot: Slot) -> None:
    assert slot.failure(group(PermanentFailure("a"), PermanentFailure("b"))).permanent
    assert slot.failure(group(PermanentFailure("a"), ExceptionGroup("inner", [PermanentFailure("b")]))).permanent
    assert not slot.failure(group(PermanentFailure("a"), ExceptionGroup("inner", [ValueError()]))).permanent
    assert not slot.failure(group(PermanentFailure("a"), RetryLater(5))).permanent


def test_group_of_which_all_ask_for_a_delay__gets_the_longest(slot: Slot) -> None:
    assert slot.failure(group(RetryLater(5), ExceptionGroup("inner", [RetryLater(9)]))).delay == 9.0
    assert slot.failure(group(RetryLater(5), ValueError())).delay is None


def test_delay_beyond_the_calendar__is_bounded(slot: Slot) -> None:
    def later(payload: Any) -> None:
        raise RetryLater(timedelta.max)

    assert slot.failure(later).delay == MAX_DELAY


def test_permanent_failure__names_the_last_attempt(slot: Slot) -> None:
    def gives_up(payload: Any) -> None:
        raise PermanentFailure("stolen")

    error = slot.failure(gives_up, attempts=2).error
    assert "\n\nNot tried again after attempt 2 of 25.\n\n" in error
    assert attempts_made(25, 25, error) == 2
    assert "Not tried again" not in slot.failure(breaks, attempts=2).error


@dataclass
class Receipt:
    order: int


def test_payload_that_does_not_fit_its_type__is_not_tried_again(slot: Slot) -> None:
    def typed(payload: Receipt) -> None: ...

    def typed_batch(payload: list[Receipt]) -> None: ...

    outcome = slot.failure(typed, '{"order": "x"}')
    assert outcome.permanent
    assert outcome.error.startswith("django_graphile_worker.exceptions.PayloadError: payload: expected a whole number")
    assert "Not tried again after attempt 1 of 25." in outcome.error
    assert slot.failure(typed_batch, '[{"order": 1}, {}]').permanent


def test_payload_error_of_a_job_that_the_task_adds__is_tried_again(slot: Slot) -> None:
    def adds(payload: Any) -> None:
        raise PayloadError("payload: expected a finite number, got nan at $.price.")

    assert not slot.failure(adds).permanent


def test_backoff__is_asked_with_attempts_and_error(slot: Slot) -> None:
    asked: list[Any] = []

    def backoff(attempts: int, error: BaseException) -> float:
        asked.append((attempts, error))
        return 5 * attempts

    error = ValueError()

    def breaks(payload: Any) -> None:
        raise error

    assert slot.failure(make_task(breaks, backoff=backoff), attempts=3).delay == 15.0
    assert asked == [(3, error)]


class GoneError(LookupError):
    pass


def vanishes(payload: Any) -> None:
    raise GoneError("order 5")


async def vanishes_later(payload: Any) -> None:
    raise GoneError("order 5")


@pytest.mark.parametrize("function", [vanishes, vanishes_later], ids=["def", "async"])
def test_give_up_on__fails_at_once__and_the_error_says_why(slot: Slot, function: Any) -> None:
    outcome = slot.failure(make_task(function, give_up_on=(KeyError, LookupError), backoff=timedelta(seconds=5)))
    assert (outcome.permanent, outcome.delay) == (True, None)
    assert "Not tried again after attempt 1 of 25.\nNot retried because of give_up_on." in outcome.error
    assert not slot.failure(make_task(function, give_up_on=(ValueError,))).permanent


def test_retry_for__are_the_only_exceptions_that_are_retried(slot: Slot) -> None:
    assert not slot.failure(make_task(vanishes, retry_for=(LookupError,))).permanent
    outcome = slot.failure(make_task(vanishes, retry_for=(ConnectionError,)))
    assert outcome.permanent
    assert "Not retried because of retry_for." in outcome.error
    assert slot.failure(make_task(vanishes, retry_for=(LookupError,), give_up_on=(GoneError,))).permanent

    def later(payload: Any) -> None:
        raise RetryLater(7)

    assert slot.failure(make_task(later, retry_for=(ConnectionError,))).delay == 7.0


def test_give_up_on__of_a_batch_if_every_failed_item_is_of_it(slot: Slot) -> None:
    def items(payload: Any) -> list[Any]:
        return [{"gone": GoneError("x"), "broken": ValueError("y")}.get(item) for item in payload]

    task = make_task(items, give_up_on=(GoneError,))
    assert slot.failure(task, '["gone", "fine"]').permanent
    mixed = slot.failure(task, '["gone", "broken", "fine"]')
    assert (mixed.permanent, mixed.payload_text) == (False, '["gone","broken"]')


def twice_as_long(attempts: int, error: BaseException) -> float | None:
    return 2.0 * attempts if isinstance(error, GoneError) else None


PATH = "tests.unit.worker.execution.test_retry"


def test_settings__say_it_for_all_tasks__and_a_task_goes_before_them() -> None:
    with open_slot(give_up_on=[f"{PATH}.GoneError", ZeroDivisionError], backoff=5) as slot:
        outcome = slot.failure(vanishes)
        assert outcome.permanent
        assert "Not retried because of the setting GIVE_UP_ON." in outcome.error
        assert not slot.failure(make_task(vanishes, retry_for=(GoneError,))).permanent
        assert slot.failure(breaks).delay == 5.0
        assert slot.failure(make_task(breaks, backoff=lambda attempts, error: None)).delay == 5.0
        assert slot.failure(make_task(breaks, backoff=timedelta(seconds=9))).delay == 9.0
    with open_slot(backoff=f"{PATH}.twice_as_long") as slot:
        assert (slot.failure(vanishes, attempts=3).delay, slot.failure(breaks).delay) == (6.0, None)


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        (
            {"give_up_on": ["shop.Gone"]},
            r"GIVE_UP_ON.*expected exception classes, got 'shop.Gone', which is an Im",
        ),
        ({"give_up_on": [f"{PATH}.breaks"]}, r"GIVE_UP_ON.*expected exception classes, got"),
        ({"give_up_on": "shop.Gone"}, r"GIVE_UP_ON.*expected a list of exception classes, or of their dotted paths"),
        ({"backoff": f"{PATH}.PATH"}, r"BACKOFF.*expected a function, got"),
        ({"backoff": -1}, r"BACKOFF.*expected None, a function, the dotted path of a function, or a number of seconds"),
        ({"max_attempts": 0}, r"MAX_ATTEMPTS.*expected a whole number from 1 to 32767, got 0"),
    ],
)
def test_settings_that_cannot_be_used__are_refused_at_the_start(settings: dict[str, Any], message: str) -> None:
    with pytest.raises(ConfigurationError, match=message), open_slot(**settings):
        pass


def test_signal_and_log__say_that_the_job_was_given_up(slot: Slot, caplog: pytest.LogCaptureFixture) -> None:
    seen: list[str] = []

    def remember(given_up_by: str, **kwargs: Any) -> None:
        seen.append(given_up_by)

    job_permanently_failed.connect(remember)
    try:
        slot.failure(make_task(vanishes, give_up_on=(GoneError,)))
        slot.failure(vanishes, attempts=25)
    finally:
        job_permanently_failed.disconnect(remember)
    assert seen == ["give_up_on", ""]
    assert "(attempt 1 of 25), not retried because of give_up_on: GoneError: order 5" in caplog.text


LIMIT = 65_536


def raised(error: BaseException) -> BaseException:
    try:
        raise error
    except BaseException as caught:
        return caught


def test_text__leaves_out_the_workers_frames_and_keeps_the_tasks(slot: Slot) -> None:
    def breaks(payload: Any) -> None:
        raise ValueError("boom")

    async def breaks_later(payload: Any) -> None:
        breaks(payload)

    for function in (breaks, breaks_later):
        text = slot.failure(function).error
        assert "django_graphile_worker/worker" not in text
        assert text.count('File "') == 1 + (function is breaks_later)
        assert 'raise ValueError("boom")' in text


def test_text__has_no_locals() -> None:
    password = "hunter" + "2"
    assert password not in describe(raised(ValueError("boom")), limit=LIMIT)


def test_text__shows_causes_and_notes() -> None:
    error = ValueError("outer")
    error.__cause__ = raised(KeyError("inner"))
    error.add_note("while importing row 7")
    text = describe(raised(error), limit=LIMIT)
    assert "KeyError: 'inner'" in text
    assert "while importing row 7" in text


def test_text__shows_the_members_of_a_group() -> None:
    group = BaseExceptionGroup("several", [raised(ValueError("one")), raised(TypeError("two"))])
    text = describe(raised(group), limit=LIMIT)
    assert "ValueError: one" in text
    assert "TypeError: two" in text


def test_huge_message__is_cut_in_the_middle() -> None:
    text = describe(raised(ValueError("start" + "x" * 5_000_000 + "end")), limit=1_000)
    assert len(text) <= 1_000
    assert text.startswith("ValueError: start")
    assert text.endswith("end")
    assert re.search(r"\[\.\.\. \d+ characters left out \.\.\.\]", text)


@given(st.text(alphabet=st.characters()), st.integers(200, 300))
def test_cut__always_gives_text_that_can_be_stored(text: str, limit: int) -> None:
    result = cut(text * 20, limit)
    assert len(result) <= limit
    assert "\x00" not in result
    result.encode()


SECRETS = "could not connect: host=db password=hunter2 token='abc def' https://me:sesame@example.org/"


def fails_with_secrets(payload: Any) -> None:
    raise ConnectionError(SECRETS)


def test_stored_error__has_no_secrets(slot: Slot) -> None:
    error = slot.failure(fails_with_secrets).error
    assert "could not connect: host=db password=" in error
    assert not re.search("hunter2|abc def|sesame", error)


@pytest.mark.parametrize(
    "text",
    [
        "401 for Authorization: Bearer s3cr3t",
        "'authorization': 'Basic s3cr3t'",
        "DETAIL:  Key (token)=(s3cr3t) already exists.",
        "user[password]=s3cr3t",
        r"body {\"password\": \"the s3cr3t\"}",
        "password => 's3cr3t'",
        "password == s3cr3t",
        r"password='it\'s s3cr3t'",
    ],
)
def test_stored_error__has_no_secrets_in_other_spellings(text: str) -> None:
    assert "s3cr3t" not in redacted_and_cut(f"ValueError: {text}", LIMIT)


@pytest.mark.parametrize(
    "text",
    [
        "{'credentials': {'user': 'A', 's3cr3t': 'B'}}",
        "{'tokens': ['A', 's3cr3t'], 'n': 1}",
        "Key (api_token, tenant)=(A, s3cr3t) already exists.",
        "Key (lower(api_token::text), lower(tenant))=(A, s3cr3t (B)) already exists.",
        "password=b'A s3cr3t'",
        "token=Token('A', 's3cr3t')",
        "password='''A s3cr3t'''",
        "password='A s3cr3t",
        "{'tokens': ['A', 's3cr3t",
        '{\n  "credentials": {\n    "user": "A",\n    "pin": "s3cr3t"\n  }\n}',
        "{'password': {'a': \"it's\", 'b': 's3cr3t'}}",
        "postgres://bob:A@s3cr3t@host/db",
        "git+https://s3cr3t@github.com/a/b",
        "-----BEGIN RSA PRIVATE KEY-----\ns3cr3t\n-----END RSA PRIVATE KEY-----",
        r"{'pem': '-----BEGIN PRIVATE KEY-----\ns3cr3t",
    ],
)
def test_stored_error__has_no_part_of_a_secret(text: str) -> None:
    assert "s3cr3t" not in redacted_and_cut(f"ValueError: {text}", LIMIT)


def test_stored_error__has_what_follows_a_secret() -> None:
    text = "{'tokens': ['A', 'B'], 'n': 1} in call(token=[\n  File \"a.py\", line 1\nValueError: no"
    shown = "{'tokens': ••••••, 'n': 1} in call(token=••••••\n  File \"a.py\", line 1\nValueError: no"
    assert redacted_and_cut(text, LIMIT) == shown


def test_stored_error__has_no_secret_that_a_cut_parts_from_its_name(slot: Slot) -> None:
    tokens = {"tokens": [f"s3cr3t {number}" for number in range(40_000)]}

    def fails(payload: object) -> None:
        raise ValueError(str(tokens))

    assert "s3cr3t" not in slot.failure(fails).error


def test_stored_error__has_everything_where_the_site_wants_it() -> None:
    with open_slot(redact_errors=False) as slot:
        assert "hunter2" in slot.failure(fails_with_secrets).error


def test_stored_error__keeps_its_limit_though_what_hides_a_secret_is_longer() -> None:
    with open_slot(max_error_length=500) as slot:

        def fails(payload: Any) -> None:
            raise ValueError("key=1 " * 10_000)

        assert len(slot.failure(fails).error) <= 500


def test_cut__leaves_no_half_of_a_secret_at_the_seam() -> None:
    secret = "s3cr3t" * 40
    text = "a " * 1_000 + f"password={secret} " + "b " * 100
    for limit in range(300, 700):
        assert "s3cr3t" not in redacted_and_cut(cut(text, limit), limit)
