"""Django's migrations of the worker schema. Released ones, and the files of ``sql/ddl`` that they run, never change."""

from __future__ import annotations
