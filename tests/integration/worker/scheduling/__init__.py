"""Schedules: what becomes of their ticks."""
