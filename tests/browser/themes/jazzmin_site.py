"""The demo site with django-jazzmin."""

from __future__ import annotations

from tests.browser.themes.base import *  # noqa: F403
from tests.browser.themes.base import APPS

INSTALLED_APPS = ["jazzmin", *APPS]
# The browser of the tests reaches no other site.
JAZZMIN_SETTINGS = {"use_google_fonts_cdn": False}
