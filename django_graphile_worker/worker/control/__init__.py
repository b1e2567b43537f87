"""Control over running work: reads which jobs are to stop, and stops one run of a job, also at its deadline.

Start reading in ``control_reader``, which reads the requests for this worker, or in ``run_stops``:
``RunStops.request()`` takes the request to stop a run, ``RunStopper`` stops it, and ``position`` says where it is. The
folder imports ``execution``, ``django_connections`` and ``outcomes``, and no part beside it.
"""
