"""The page of events.

Start reading with ``event_page``. ``event_text`` writes the sentences of ``django_graphile_worker.event_texts`` as HTML
with links, ``audit_log`` shows what users changed in the admin. The alarms are in ``admin.overview.event_alarms``.
"""
