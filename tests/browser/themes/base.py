"""What the sites with another theme share: the demo site, with the tasks and the schedules of the showcase."""

from __future__ import annotations

from testproject.settings import *  # noqa: F403
from testproject.settings import GRAPHILE_WORKER, INSTALLED_APPS
from tests.browser import showcase_crontab

APPS = [*INSTALLED_APPS, "tests.browser.themes.apps.ShowcaseConfig"]
GRAPHILE_WORKER |= {"CRONTAB": showcase_crontab.CRONTAB}
