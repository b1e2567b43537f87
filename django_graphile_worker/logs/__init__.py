"""The log lines of workers, written by receivers of the signals.

``receivers`` has the line of each signal. ``lines`` turns arguments into text and record attributes,
``throttle`` limits repeated lines, and ``exc_info`` prepares exceptions for records. The folder may import the signals
and everything below them.
"""
