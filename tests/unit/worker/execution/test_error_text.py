"""The text that a failed job keeps."""

from __future__ import annotations

import re
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from django_graphile_worker.logs.exc_info import redacted_and_cut
from django_graphile_worker.worker.execution.error_text import cut, describe, summary
from tests.support.slot import Slot, open_slot

LIMIT = 65_536


def raised(error: BaseException) -> BaseException:
    try:
        raise error
    except BaseException as caught:
        return caught


def test_text__begins_with_class_and_message() -> None:
    assert describe(raised(ValueError("no such order")), limit=LIMIT).startswith("ValueError: no such order\n\n")


def test_text__ends_with_the_standard_traceback() -> None:
    text = describe(raised(ValueError("no such order")), limit=LIMIT)
    assert "Traceback (most recent call last):" in text
    assert "in raised" in text
    assert text.endswith("ValueError: no such order")


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


def test_causes_in_a_circle__end() -> None:
    one, two = raised(ValueError("one")), raised(ValueError("two"))
    one.__cause__, two.__cause__ = two, one
    assert describe(one, limit=LIMIT).startswith("ValueError: one")


def test_message_that_cannot_be_read__leaves_the_class() -> None:
    class MutedError(Exception):
        def __str__(self) -> str:
            raise SystemExit

    assert "MutedError" in describe(raised(MutedError()), limit=LIMIT)
    assert "MutedError" in summary(MutedError())


@pytest.mark.parametrize("message", ["a\x00b", "\ud800", "x\udfff\x00y"])
def test_what_postgresql_refuses__is_written_out(message: str) -> None:
    text = describe(raised(ValueError(message)), limit=LIMIT)
    text.encode()
    assert "\x00" not in text
    assert "\\x00" in text or "\\ud" in text


def test_huge_message__is_cut_in_the_middle() -> None:
    text = describe(raised(ValueError("start" + "x" * 5_000_000 + "end")), limit=1_000)
    assert len(text) <= 1_000
    assert text.startswith("ValueError: start")
    assert text.endswith("end")
    assert re.search(r"\[\.\.\. \d+ characters left out \.\.\.\]", text)


def test_huge_traceback__keeps_both_ends() -> None:
    def ping(depth: int) -> None:
        pong(depth - 1) if depth else raised_here()

    def pong(depth: int) -> None:
        ping(depth)

    def raised_here() -> None:
        raise ValueError("at the bottom")

    try:
        ping(300)
    except ValueError as error:
        text = describe(error, limit=2_000)
    assert len(text) <= 2_000
    assert text.startswith("ValueError: at the bottom")
    assert "raised_here" in text[-400:]


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


def test_stored_error__has_the_names_between_secrets() -> None:
    text = "host=db password=A port=1 token=C at user=E; token: F is unknown\nssh://git@host/ -----BEGIN CERTIFICATE"
    shown = "host=db password=•••••• port=1 token=•••••• at user=E; token: •••••• is unknown"
    assert redacted_and_cut(text, LIMIT) == f"{shown}\nssh://git@host/ -----BEGIN CERTIFICATE"


def test_stored_error__has_what_follows_a_secret() -> None:
    text = "{'tokens': ['A', 'B'], 'n': 1} in call(token=[\n  File \"a.py\", line 1\nValueError: no"
    shown = "{'tokens': ••••••, 'n': 1} in call(token=••••••\n  File \"a.py\", line 1\nValueError: no"
    assert redacted_and_cut(text, LIMIT) == shown


def test_stored_error__has_no_secret_that_a_cut_parts_from_its_name(slot: Slot) -> None:
    tokens = {"tokens": [f"s3cr3t {number}" for number in range(40_000)]}

    def fails(payload: object) -> None:
        raise ValueError(str(tokens))

    assert "s3cr3t" not in slot.failure(fails).error


def test_stored_error_of_a_batch__has_no_secrets(slot: Slot) -> None:
    error = slot.failure(lambda payload: [None, ConnectionError(SECRETS)], "[1, 2]").error
    assert "[1] ConnectionError: could not connect" in error
    assert not re.search("hunter2|abc def|sesame", error)


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
