"""The stack of a task, out of the stacks that a killed process has written."""

from __future__ import annotations

from django_graphile_worker.worker.execution.error_text import OWN_FOLDERS
from django_graphile_worker.worker.overdue.end_of_runs import stack_of

OWN = OWN_FOLDERS[0]
STACKS = f"""Thread 0x00007f01 (most recent call first):
  File "/shop/images.py", line 12 in blur
  File "/shop/tasks.py", line 5 in resize
  File "{OWN}execution/invoker.py", line 100 in invoke
  File "{OWN}execution/executor.py", line 150 in _run
  File "/lib/python3.11/threading.py", line 1002 in _bootstrap

Thread 0x00007f02 (most recent call first):
  File "{OWN}execution/coroutines/coroutine_run.py", line 60 in serve
  File "{OWN}execution/executor.py", line 150 in _run

Current thread 0x00007f03 (most recent call first):
  File "/shop/tasks.py", line 9 in in_a_coroutine
  File "/lib/python3.11/asyncio/base_events.py", line 600 in run_forever
"""


def test_stack__is_that_of_the_task_in_the_order_of_a_traceback() -> None:
    assert stack_of(STACKS, 0x7F01).splitlines() == [
        '  File "/shop/tasks.py", line 5 in resize',
        '  File "/shop/images.py", line 12 in blur',
    ]


def test_stack_of_a_coroutine__is_that_of_the_event_loop() -> None:
    assert "in in_a_coroutine" in stack_of(STACKS, 0x7F02)


def test_no_stacks__are_no_stack() -> None:
    assert stack_of("", 0x7F01) == ""
