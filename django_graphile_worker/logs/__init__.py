"""The log lines of workers, written by receivers of the signals.

``receivers`` has the line of each signal. ``lines`` turns arguments into text and record attributes, and ``errors``
turns errors into text. ``console`` is the log of ``runworker`` on standard error. The folder may import the signals and
everything below them.
"""
