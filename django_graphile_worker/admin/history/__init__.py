"""The page of ended attempts and its search. Start with history_page.py."""
