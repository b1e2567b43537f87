"""Imports the schedules of other job queues: a folder for each."""

from __future__ import annotations
