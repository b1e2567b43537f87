"""Statements of schedules."""
