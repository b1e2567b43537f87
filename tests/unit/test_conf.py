from __future__ import annotations

import asyncio
import re
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest

from django_graphile_worker import conf
from django_graphile_worker.conf import MoreFlags, Settings, checked_flags, chosen_backends
from django_graphile_worker.exceptions import ConfigurationError
from django_graphile_worker.worker.task_selection import task_finder

SCHEMA_EXPECTED = (
    "a schema name of letters, digits and underscores that does not begin with a digit (at most 63 characters)"
)


def test_defaults() -> None:
    settings = Settings.from_mapping({})
    assert settings == Settings()
    assert (settings.schema, settings.database) == ("graphile_worker", "default")
    assert (settings.concurrency, settings.processes, settings.local_queue_size) == (10, 1, 2000)
    assert (settings.poll_interval, settings.grace_period) == (2.0, 5.0)
    assert (settings.heartbeat_interval, settings.worker_timeout, settings.statement_timeout) == (10.0, 60.0, 30.0)
    assert (settings.listen, settings.notify, settings.prepared_statements, settings.log_success) == (True,) * 4
    assert (settings.use_local_time, settings.drop_waiting_jobs) == (False, False)
    assert (settings.max_payload_size, settings.max_error_length) == (16_777_216, 65_536)
    assert settings.statistics_retention == 8 * 86_400
    assert (settings.migration_lock_timeout, settings.admin_statement_timeout) == (5.0, 5.0)
    assert (settings.tasks, settings.exclude_tasks, settings.middleware, settings.forbidden_flags) == ((),) * 4
    assert (settings.crontab, settings.crontab_file) == ("", None)


@pytest.mark.parametrize(
    ("key", "given", "stored"),
    [
        ("POLL_INTERVAL", timedelta(milliseconds=1500), 1.5),
        ("GRACE_PERIOD", 0, 0.0),
        ("STATISTICS_RETENTION", timedelta(days=1), 86_400.0),
        ("KEEP_RESULTS", timedelta(hours=1), 3600.0),
        ("KEEP_RESULTS", None, None),
        ("TIMEOUT", timedelta(minutes=1), 60.0),
        ("TIMEOUT", None, None),
        ("STOP_GRACE", 2, 2.0),
        ("HISTORY", timedelta(days=30), 2_592_000.0),
        ("TASKS", ["billing:*"], ("billing:*",)),
        ("EXCLUDE_TASKS", {"slow"}, ("slow",)),
        ("FORBIDDEN_FLAGS", ["a", "b"], ("a", "b")),
        ("FORBIDDEN_FLAGS", "shop.flags.forbidden", "shop.flags.forbidden"),
        ("MIDDLEWARE", ["shop.jobs.measure"], ("shop.jobs.measure",)),
        ("CRONTAB", ["* * * * * a", 5], ("* * * * * a", 5)),
        ("CRONTAB_FILE", "crontab", Path("crontab")),
        ("CRONTAB_FILE", None, None),
        ("CRONTAB_TIME_ZONE", "Europe/Paris", "Europe/Paris"),
        ("REDACT", ["^pin$"], (re.compile("^pin$", re.IGNORECASE),)),
        ("SCHEMA", "a" * 63, "a" * 63),
        ("LOCAL_QUEUE_SIZE", 0, 0),
        ("METRICS_PORT", None, None),
        ("METRICS_PORT", 9808, ("", 9808)),
        ("METRICS_PORT", "9808", ("", 9808)),
        ("METRICS_PORT", "127.0.0.1:9808", ("127.0.0.1", 9808)),
        ("METRICS_PORT", "[::1]:9808", ("::1", 9808)),
    ],
)
def test_values_are_normalised(key: str, given: Any, stored: Any) -> None:
    assert getattr(Settings.from_mapping({key: given}), key.lower()) == stored


POLL_INTERVAL_EXPECTED = (
    "a number of seconds or a timedelta, of at least 0.01 seconds and at most 600 seconds (not milliseconds)"
)
REFUSED = [
    ("SCHEMA", "x; drop schema public", SCHEMA_EXPECTED),
    ("SCHEMA", 'a"b', SCHEMA_EXPECTED),
    ("SCHEMA", "a" * 64, SCHEMA_EXPECTED),
    ("SCHEMA", "1a", SCHEMA_EXPECTED),
    ("SCHEMA", "", SCHEMA_EXPECTED),
    ("SCHEMA", "a\n", SCHEMA_EXPECTED),
    ("SCHEMA", "é", SCHEMA_EXPECTED),
    ("SCHEMA", None, SCHEMA_EXPECTED),
    ("SCHEMA", "pg_jobs", "a schema that is neither public nor one of PostgreSQL's own"),
    ("SCHEMA", "public", "a schema that is neither public nor one of PostgreSQL's own"),
    ("DATABASE", None, "a non-empty string"),
    ("CONCURRENCY", 0, "a whole number of at least 1"),
    ("CONCURRENCY", "10", "a whole number of at least 1"),
    ("CONCURRENCY", True, "a whole number of at least 1"),
    ("CONCURRENCY", 2**31, "a whole number of at least 1"),
    ("LISTEN", 1, "True or False"),
    ("GRACE_PERIOD", -1, "a number of seconds or a timedelta, of zero or more and at most ten years"),
    ("GRACE_PERIOD", "5s", "a number of seconds or a timedelta, of zero or more and at most ten years"),
    ("GRACE_PERIOD", float("nan"), "a number of seconds or a timedelta, of zero or more and at most ten years"),
    ("POLL_INTERVAL", 0, POLL_INTERVAL_EXPECTED),
    ("POLL_INTERVAL", 2000, POLL_INTERVAL_EXPECTED),
    ("TIMEOUT", 0, "None, or a number of seconds or a timedelta, of at least 0.1 seconds and at most ten years"),
    ("STOP_GRACE", 0, "a number of seconds or a timedelta, of at least 0.1 seconds and at most ten years"),
    *(
        ("METRICS_PORT", value, "None, a port from 1 to 65535, or a text like '127.0.0.1:9808'")
        for value in (0, 65536, True, 9808.0, "", "localhost", "localhost:", "localhost:http")
    ),
    ("METRICS_TOKEN", "", "None, or a non-empty string of ASCII letters, digits and symbols"),
    ("KEEP_RESULTS", 0, "None, or a number of seconds or a timedelta, of at least 1 seconds and at most ten years"),
    ("HISTORY", True, "None, or a number of seconds or a timedelta, of at least 60 seconds and at most ten years"),
    ("HISTORY_PAYLOADS", 1, "True or False"),
    ("TASKS", "billing:*", "a list of non-empty strings"),
    ("TASKS", [""], "a list of non-empty strings"),
    ("MIDDLEWARE", ["measure"], "a list of dotted paths like 'shop.jobs.middleware'"),
    ("FORBIDDEN_FLAGS", "slow", "a list of flags, a callable, or the dotted path of a callable"),
    ("CRONTAB", 5, "crontab text, or a list of crontab lines and CronItems"),
    ("CRONTAB_FILE", 5, "a path, or None"),
    ("CRONTAB_TIME_ZONE", "Paris", "the name of an IANA time zone like 'Europe/Paris'"),
    ("CRONTAB_TIME_ZONE", None, "the name of an IANA time zone like 'Europe/Paris'"),
    ("REDACT", "pin", "a list of regular expressions"),
]


@pytest.mark.parametrize(("key", "value", "expected"), REFUSED)
def test_a_wrong_value_is_refused(key: str, value: Any, expected: str) -> None:
    with pytest.raises(ConfigurationError) as refused:
        Settings.from_mapping({key: value})
    assert str(refused.value) == f'GRAPHILE_WORKER["{key}"]: expected {expected}, got {value!r}.'
    assert [mistake.key for mistake in refused.value.mistakes] == [key]


def test_a_bad_regular_expression_says_what_is_bad_about_it() -> None:
    with pytest.raises(ConfigurationError, match=r"expected a list of regular expressions \(unterminated"):
        Settings.from_mapping({"REDACT": ["[a"]})


def test_one_error_has_every_mistake() -> None:
    with pytest.raises(ConfigurationError) as refused:
        Settings.from_mapping({"CONCURENCY": 5, "LISTEN": "yes", "schema": "a"})
    assert str(refused.value).splitlines() == [
        "GRAPHILE_WORKER: expected a known key, got 'CONCURENCY'. Did you mean 'CONCURRENCY'?",
        "GRAPHILE_WORKER[\"LISTEN\"]: expected True or False, got 'yes'.",
        "GRAPHILE_WORKER: expected a known key, got 'schema'. Did you mean 'SCHEMA'?",
    ]
    assert [mistake.is_unknown_key for mistake in refused.value.mistakes] == [True, False, True]


@pytest.mark.parametrize("token", ["s\N{LATIN SMALL LETTER E WITH ACUTE}cret", "secret\n", "my secret"])
def test_token_that_no_header_can_have__is_refused_and_not_shown(token: str) -> None:
    with pytest.raises(ConfigurationError, match="and symbols, got one with other characters") as refused:
        Settings.from_mapping({"METRICS_TOKEN": token})
    assert "cret" not in str(refused.value)


def test_a_key_like_no_other_lists_the_known_ones() -> None:
    with pytest.raises(ConfigurationError, match=r"'BROKER_URL'\. Known keys: ADMIN_STATEMENT_TIMEOUT, .*TIMEOUT\.$"):
        Settings.from_mapping({"BROKER_URL": "redis://"})


def test_a_statement_that_may_take_longer_than_half_the_worker_timeout_is_refused() -> None:
    with pytest.raises(ConfigurationError) as raised:
        Settings.from_mapping({"WORKER_TIMEOUT": 9, "HEARTBEAT_INTERVAL": 3, "STATEMENT_TIMEOUT": 30})
    assert str(raised.value) == (
        'GRAPHILE_WORKER["STATEMENT_TIMEOUT"]: expected at most half of WORKER_TIMEOUT (4.5 seconds), got 30: '
        "a worker whose statement hangs would lose its jobs before it can try again."
    )


def test_a_short_worker_timeout_makes_the_default_of_statements_shorter() -> None:
    assert Settings.from_mapping({"WORKER_TIMEOUT": 9, "HEARTBEAT_INTERVAL": 3}).statement_timeout == 4.5
    assert Settings().replace(worker_timeout=30).statement_timeout == 15
    assert Settings.from_mapping({"WORKER_TIMEOUT": 90}).statement_timeout == 30


def test_a_worker_timeout_of_less_than_three_heartbeats_is_refused() -> None:
    with pytest.raises(ConfigurationError) as refused:
        Settings.from_mapping({"WORKER_TIMEOUT": 29, "HEARTBEAT_INTERVAL": 10})
    assert str(refused.value) == (
        'GRAPHILE_WORKER["WORKER_TIMEOUT"]: expected at least three times HEARTBEAT_INTERVAL (30 seconds), '
        "got 29: a worker that misses one heartbeat would lose its jobs."
    )
    assert Settings.from_mapping({"WORKER_TIMEOUT": 30, "HEARTBEAT_INTERVAL": 10}).worker_timeout == 30


def test_replace_checks_as_the_settings_are_checked() -> None:
    settings = Settings().replace(concurrency=3, poll_interval=timedelta(seconds=1))
    assert (settings.concurrency, settings.poll_interval) == (3, 1.0)
    with pytest.raises(ConfigurationError, match=r"expected a whole number of at least 1, got 0"):
        settings.replace(concurrency=0)
    with pytest.raises(ConfigurationError, match="Did you mean 'CONCURRENCY'"):
        settings.replace(concurency=5)


def test_current_is_read_once_and_follows_changed_settings(settings: Any) -> None:
    settings.GRAPHILE_WORKER = {"CONCURRENCY": 3}
    assert conf.current().concurrency == 3
    assert conf.current() is conf.current()
    settings.GRAPHILE_WORKER = {"CONCURRENCY": 4}
    assert conf.current().concurrency == 4
    settings.GRAPHILE_WORKER = {}
    assert conf.current() == Settings()


def test_settings_that_are_no_dict_are_refused(settings: Any) -> None:
    settings.GRAPHILE_WORKER = ["SCHEMA"]
    with pytest.raises(ConfigurationError, match=r"^settings\.GRAPHILE_WORKER: expected a dict, got \['SCHEMA'\]\.$"):
        conf.current()


@pytest.mark.parametrize(
    ("value", "schema"),
    [
        ({"SCHEMA": "jobs"}, "jobs"),
        ({"SCHEMA": "jobs", "LISTEN": "yes"}, "jobs"),
        ({"SCHEMA": "not a name"}, "graphile_worker"),
        ({}, "graphile_worker"),
        (["SCHEMA"], "graphile_worker"),
        ({"default": {"SCHEMA": "jobs"}, "reports": {"SCHEMA": "reports"}}, "jobs"),
        ({"default": {}, "reports": {"SCHEMA": "reports"}}, "graphile_worker"),
        ({"default": {"SCHEMA": "not a name"}}, "graphile_worker"),
        ({"default": 5}, "graphile_worker"),
    ],
)
def test_models_get_a_schema_also_when_the_settings_are_wrong(settings: Any, value: Any, schema: str) -> None:
    settings.GRAPHILE_WORKER = value
    assert conf.schema_of_models() == schema


def test_named_installations__have_settings_of_their_own(settings: Any) -> None:
    settings.GRAPHILE_WORKER = {
        "default": {"CONCURRENCY": 3, "REDACT": ["pin"]},
        "reports": {"SCHEMA": "reports", "CONCURRENCY": 2},
        "eu-1": {"DATABASE": "eu"},
    }
    assert conf.are_installations_named()
    assert conf.current().concurrency == 3
    installations = conf.configured().installations
    assert (installations["reports"].schema, installations["reports"].concurrency) == ("reports", 2)
    # Nothing is inherited, as in CACHES.
    assert (installations["eu-1"].database, installations["eu-1"].concurrency) == ("eu", 10)


@pytest.mark.parametrize(
    ("value", "messages"),
    [
        (
            {"SCHEMA": "a", "reports": {"SCHEMA": "b"}},
            [
                r"has settings or a dict of settings for each installation, not both: 'reports' is a dict",
            ],
        ),
        ({"reports": {}}, [r"needs an installation 'default' beside 'reports'"]),
        (
            {"TIMEOUT": 30, "LIMIT": {"account": {"concurrency": 5}}},
            [r"^GRAPHILE_WORKER: expected a known key, got 'LIMIT'\. Did you mean 'LIMITS'\?$"],
        ),
        (
            {"default": {}, "reports": {}},
            [r'\["reports"\]: the installation \'default\' uses the schema \'graphile_worker\' in the database'],
        ),
        (
            {"default": {"LISTEN": 1}, "reports": {"SCHEMA": "b", "CONCURENCY": 3}},
            [
                r'^GRAPHILE_WORKER\["default"\]\["LISTEN"\]: expected True or False, got 1\.$',
                r'^GRAPHILE_WORKER\["reports"\]: expected a known key, got \'CONCURENCY\'\. Did you mean',
            ],
        ),
        (
            {"default": {}, "reports": {"SCHEMA": "b", "WORKER_TIMEOUT": 5}},
            [r'^GRAPHILE_WORKER\["reports"\]\["WORKER_TIMEOUT"\]: expected at least three times HEARTBEAT_INTERVAL'],
        ),
        (
            {"default": {}, "reports": {"SCHEMA": "b", "REDACT": []}},
            [r"'REDACT' is a setting of the project\. Put it into"],
        ),
        ({"default": {}, "a b": {"SCHEMA": "b"}}, [r"the name of an installation has letters, .*, got 'a b'"]),
        # A setting whose value is wrong is no installation.
        ({"CONCURRENCY": {"a": 1}}, [r"expected a whole number of at least 1, got \{'a': 1\}"]),
    ],
)
def test_named_installations__with_mistakes_are_refused_with_the_way_out(
    settings: Any, value: Any, messages: list[str]
) -> None:
    settings.GRAPHILE_WORKER = value
    with pytest.raises(ConfigurationError) as refusal:
        conf.current()
    mistakes = [str(mistake) for mistake in refusal.value.mistakes]
    assert len(mistakes) == len(messages), mistakes
    for message, mistake in zip(messages, mistakes, strict=True):
        assert re.search(message, mistake), mistake


@pytest.mark.parametrize(
    ("setting", "chosen"),
    [
        (None, {}),
        ({}, {}),
        ([], {}),
        ({"default": None}, {}),
        ({"default": {"BACKEND": "django.tasks.backends.immediate.ImmediateBackend"}}, {}),
        ({"default": {"BACKEND": "django_tasks.backends.dummy.DummyBackend"}}, {}),
        ({"default": {"BACKEND": "shop.Backend"}, "other": {}}, {"default": "shop.Backend"}),
    ],
)
def test_backends_of_the_framework__do_not_count(settings: Any, setting: Any, chosen: dict[str, str]) -> None:
    settings.TASKS = setting
    try:
        assert chosen_backends() == chosen
        # A backend that is not ours, or that cannot be imported, finds no tasks.
        assert task_finder(None) is None  # type: ignore[arg-type]
    finally:
        del settings.TASKS


def flags_of_today() -> list[str]:
    return ["today"]


async def flags_from_afar() -> list[str]:
    return ["afar"]


@pytest.mark.parametrize("value", [["today"], flags_of_today, f"{__name__}.flags_of_today"])
def test_forbidden_flags_may_be_computed(value: Any) -> None:
    forbidden: Any = Settings.from_mapping({"FORBIDDEN_FLAGS": value}).forbidding(["more"]).forbidden_flags
    assert (forbidden() if callable(forbidden) else forbidden) == ("today", "more")


def test_more_flags_are_added_to_those_of_an_async_callable() -> None:
    async def computed() -> Any:
        return await MoreFlags(flags_from_afar, ("more",))()

    assert asyncio.run(computed()) == ("afar", "more")


@pytest.mark.parametrize(("flags", "checked"), [(None, ()), (["a", "b"], ("a", "b")), (iter(["a"]), ("a",)), ((), ())])
def test_a_callable_returns_any_iterable_of_flags_or_none(flags: Any, checked: tuple[str, ...]) -> None:
    assert checked_flags(flags) == checked


@pytest.mark.parametrize("flags", ["slow", b"slow", 7, [""], [None], [1]])
def test_anything_else_is_refused(flags: Any) -> None:
    expected = f"expected its callable to return a list of flags, got {flags!r}."
    with pytest.raises(ConfigurationError, match=re.escape(expected)) as caught:
        checked_flags(flags)
    assert [mistake.key for mistake in caught.value.mistakes] == ["FORBIDDEN_FLAGS"]
