"""The demo site with django-jazzmin and a theme of Bootswatch that is dark without saying so in an attribute."""

from __future__ import annotations

from tests.browser.themes.jazzmin_site import *  # noqa: F403

JAZZMIN_UI_TWEAKS = {"theme": "darkly"}
