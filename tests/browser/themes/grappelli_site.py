"""The demo site with django-grappelli."""

from __future__ import annotations

from tests.browser.themes.base import *  # noqa: F403
from tests.browser.themes.base import APPS

INSTALLED_APPS = ["grappelli", *APPS]
