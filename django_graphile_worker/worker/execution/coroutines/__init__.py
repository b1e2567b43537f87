"""Runs tasks that are coroutines: one event loop for the process, in a thread of its own.

Start with ``event_loop``. ``coroutine_run`` is one coroutine on the loop, with the thread of the slot that waits for
it; ``awaiting`` awaits what a task returns. The folder may import ``outcomes`` and ``fork_guard`` of the worker, and
``results`` beside it.
"""
