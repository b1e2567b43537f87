"""What more cores would give: a model, and the measurements of its parts.

``model.py`` has the formulas. ``processes.py`` measures the cost of a job with up to 16 worker processes, ``adders.py``
the lock that NOTIFY takes at each commit, ``disk.py`` what the disk takes, and ``two_databases.py`` what several
databases behind one worker give.
"""
