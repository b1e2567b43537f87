"""An app that registers the tasks of the showcase in the process of a site."""

from __future__ import annotations

from django.apps import AppConfig


class ShowcaseConfig(AppConfig):
    name = "tests.browser.themes"

    def ready(self) -> None:
        # Late import: the models of the showcase are not loaded before the apps are.
        from tests.browser import showcase

        showcase.register_limited_tasks()
