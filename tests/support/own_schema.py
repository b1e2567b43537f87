"""The settings of a project that sets nothing but the schema of this run of the tests."""

from __future__ import annotations

from django.conf import settings

SCHEMA: dict[str, str] = {"SCHEMA": settings.GRAPHILE_WORKER["SCHEMA"]}
