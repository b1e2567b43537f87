"""The parts of the page of a job: facts, timeline, payload, error and end. ``detail_view`` is the view."""
