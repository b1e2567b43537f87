"""The modules that Django finds as commands; each is thin."""
