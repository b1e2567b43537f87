"""The template tags of the package: ``{% load graphile_worker %}``. They may import ``results`` and ``routing``."""
