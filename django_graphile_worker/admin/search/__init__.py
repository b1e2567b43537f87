"""The search box: text in, criteria of sql/inspection out. Start with search_query.py."""
