"""The modules that Django loads as commands."""
