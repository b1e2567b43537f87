"""Control over running work: stops one run of a job, at its deadline or because the job was cancelled.

Start reading in ``stops``: ``Stops.request()`` takes the request to stop a run. The folder is loaded when a job of a
task with a time limit begins, or when the first request arrives. It imports ``execution``, ``django_connections`` and
``outcomes``, and no part beside it: ``stops.StopEvents`` lists what it calls there.
"""
