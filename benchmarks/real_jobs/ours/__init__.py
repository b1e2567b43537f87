"""This package as a queue of the real jobs: an app, because a worker imports the module ``tasks`` of each app."""
