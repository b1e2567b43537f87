"""The modules that Django loads as commands. The code of the commands is in the rest of ``management``."""
