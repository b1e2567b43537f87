"""Sites whose admin has another theme: a settings module for each theme, and the server that runs it."""
