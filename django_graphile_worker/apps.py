from __future__ import annotations

from django.apps import AppConfig
from django.utils.module_loading import autodiscover_modules
from django.utils.translation import gettext_lazy as _


class GraphileWorkerConfig(AppConfig):
    """Find every installed app's tasks."""

    name = "django_graphile_worker"
    label = "graphile_worker"
    verbose_name = _("Graphile Worker")
    default_auto_field = "django.db.models.BigAutoField"

    def ready(self) -> None:
        autodiscover_modules("tasks")
