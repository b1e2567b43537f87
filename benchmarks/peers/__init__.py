"""The queues that are measured, each in a folder of its own.

``ours`` and ``node`` run trivial jobs on the schema that they share, and are compared in most benchmarks. All of them
but ``node`` run the tasks of ``benchmarks/real_jobs``: ``peer.py`` says how, ``catalogue.py`` lists them, and
``environment.py`` installs them into a folder of the checkout that git ignores. In each folder, ``definition.py`` has
the settings and commands, and ``tasks.py`` the tasks, which only the installed environment imports.
"""
