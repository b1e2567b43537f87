"""The search box: text in, criteria of ``sql.inspection`` out, and the completion of what a user types.

``search_query`` has the terms of a search, ``expressions`` parses text into an expression of terms, ``search_criteria``
turns each term into criteria, ``name_lookup`` finds the names that a word or a wildcard matches, and ``job_search``
puts them together. Start reading with ``job_search``. ``completion`` completes what a user types, and ``questions``
offers other searches if a word is unknown.
"""
