"""The overview: tiles, alarms, tasks and charts. Start with overview_page.py."""
