"""Models that write."""
