"""The demo site's settings, with a second database, and database names that no other test run uses."""

from __future__ import annotations

import os

import django

from testproject import databases
from testproject.settings import *  # noqa: F403
from testproject.settings import DATABASES

# The first process sets it and the xdist workers inherit it, so that two runs in a checkout share no databases.
RUN = os.environ.setdefault("TEST_RUN_PID", str(os.getpid()))

DEBUG = False
if django.VERSION >= (6, 1):
    # Without it Django warns of a default that will go.
    MAILERS = {"default": {"BACKEND": "django.core.mail.backends.locmem.EmailBackend"}}
PASSWORD_HASHERS = ["django.contrib.auth.hashers.MD5PasswordHasher"]
STORAGES = {
    "default": {"BACKEND": "django.core.files.storage.InMemoryStorage"},
    "staticfiles": {"BACKEND": "django.contrib.staticfiles.storage.StaticFilesStorage"},
}

DATABASES["other"] = DATABASES["default"] | {"NAME": DATABASES["default"]["NAME"] + "_other"}

if databases.is_embedded():
    DATABASES["default"]["TEST"] = {"NAME": f"test_{RUN}", "TEMPLATE": "template0"}
    DATABASES["other"]["TEST"] = {"NAME": f"test_{RUN}_other", "TEMPLATE": "template0"}
