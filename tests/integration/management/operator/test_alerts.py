"""``alerts``: what fires, a test message, and judging without a worker."""

from __future__ import annotations

import os
import time
from typing import Any

import pytest
from django.core import mail
from django.core.management import CommandError
from django.test import override_settings

from tests.support.admins import admins
from tests.support.factories import make_failed_job
from tests.support.operating import execute, operate

pytestmark = pytest.mark.django_db(transaction=True)


@pytest.fixture
def configured(settings: Any) -> Any:
    settings.ADMINS = admins("ann@shop.example")
    settings.GRAPHILE_WORKER = {**settings.GRAPHILE_WORKER, "ALERTS": ["mail_admins", "task:page_oncall"]}
    return settings


def test_alerts__without_the_setting_lists_what_would_fire() -> None:
    assert "No alert fires." in operate("alerts").err
    make_failed_job("send", error="OSError: refused")
    shown = operate("alerts")
    assert "1 job of send failed permanently: OSError" in shown.out
    assert 'GRAPHILE_WORKER["ALERTS"] is not set' in shown.err
    with pytest.raises(CommandError, match="is not set"):
        operate("alerts", "--judge")
    assert execute("select count(*) from {schema}._private_alerts") == [(0,)]


def test_judge__tells_what_is_new_once(configured: Any) -> None:
    make_failed_job("send", error="OSError: refused")
    assert operate("alerts", "--json").json[0]["told_at"] is None
    told = operate("alerts", "--judge").out
    assert "mail_admins: sent to 1 address: 1 job of send failed permanently: OSError\n" in told
    assert "task:page_oncall: added job " in told
    assert "Another process has judged" in operate("alerts", "--judge").err
    execute("update {schema}._private_alerts set free_at = now()")
    assert "There is nothing new to tell." in operate("alerts", "--judge").err
    assert len(mail.outbox) == 1
    alerts = {each["kind"]: each for each in operate("alerts", "--json").json}
    assert alerts["permanently_failed"]["told_at"] is not None


def test_role_without_rights__gets_an_error_of_the_command(configured: Any) -> None:
    role = f"gw_nobody_{os.getpid()}"
    execute(f"create role {role}; grant usage on schema {{schema}} to {role}")
    configured.DATABASES["default"]["OPTIONS"]["assume_role"] = role
    try:
        with pytest.raises(CommandError, match="permission"):
            operate("alerts")
    finally:
        del configured.DATABASES["default"]["OPTIONS"]["assume_role"]
        execute(f"drop owned by {role}; drop role {role}")


def test_test__says_what_became_of_each_destination(configured: Any) -> None:
    assert operate("alerts", "--test").out.startswith("mail_admins: sent to 1 address.\ntask:page_oncall: added job ")
    assert mail.outbox[0].subject == '[Django] A test of GRAPHILE_WORKER["ALERTS"]'
    ((sent_at,),) = execute("select payload -> 'alerts' -> 0 -> 'at' from {schema}._private_jobs")
    assert sent_at == pytest.approx(time.time(), abs=60)
    with override_settings(ADMINS=[]), pytest.raises(CommandError, match=r"1 of 2 destinations did not take"):
        operate("alerts", "--test")


def test_judge__fails_if_a_message_was_not_delivered(configured: Any) -> None:
    make_failed_job()
    with override_settings(ADMINS=[]), pytest.raises(CommandError, match="mail_admins: not delivered: the setting ADM"):
        operate("alerts", "--judge")
