"""The overview, and the page of a task. Start with ``page``; ``figures`` reads what it shows, in one transaction."""
