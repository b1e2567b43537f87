"""A page of a project with the progress of a job, and the pages of the demo site."""

from __future__ import annotations

from django.http import HttpRequest, HttpResponse
from django.template import RequestContext, Template
from django.urls import path

from django_graphile_worker import result
from testproject.urls import urlpatterns as of_the_demo

PAGE = Template("""{% load graphile_worker %}<!doctype html><html lang="en"><title>Export</title>
<body class="gw-page"><h1>Export</h1>{% job_progress job finished_url=request.path %}
{% if found.is_finished %}<p id="done">{{ found.value.pages }} pages</p>{% endif %}</body></html>""")


def export(request: HttpRequest, job_id: int) -> HttpResponse:
    return HttpResponse(PAGE.render(RequestContext(request, {"job": job_id, "found": result(job_id)})))


urlpatterns = [path("export/<int:job_id>/", export), *of_the_demo]
