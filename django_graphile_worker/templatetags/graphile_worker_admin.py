"""``{% list_rows cl %}``: the table of a list, with the columns of its ModelAdmin."""

from __future__ import annotations

from copy import copy
from typing import Any

from django import template
from django.contrib.admin.templatetags.admin_list import ResultList, items_for_result, result_headers
from django.utils.html import format_html
from django.utils.safestring import SafeString, mark_safe
from django.utils.text import capfirst

register = template.Library()


@register.inclusion_tag("admin/graphile_worker/_list_rows.html")
def list_rows(cl: Any) -> dict[str, Any]:
    """Show the rows of a page. Each has a key, so that a refresh replaces only those that differ."""
    headers = [_header(cl, name, each) for name, each in zip(cl.list_display, result_headers(cl), strict=True)]
    rows = []
    for found in cl.result_list:
        # An item of the crontab is a schedule without an id.
        cells = ResultList(None, items_for_result(cl if found.pk is not None else _of_items(cl), found, None))
        key = f"item-{found}" if found.pk is None else str(found.pk)
        rows.append((key, [_labelled(cell, header) for cell, header in zip(cells, headers, strict=True)]))
    return {"headers": headers, "rows": rows, "model_name": cl.opts.model_name}


def _of_items(cl: Any) -> Any:
    """Return the list for an item of the crontab: columns of the project are empty, as they expect a schedule."""
    own = {*cl.model_admin.column_classes, "action_checkbox"}
    found = copy(cl)
    found.list_display_links = None
    found.list_display = [name if name in own else _nothing for name in cl.list_display]
    return found


def _nothing(item: Any) -> None:
    """The value of a column that items do not have."""


def _header(cl: Any, name: Any, header: dict[str, Any]) -> dict[str, Any]:
    is_sorted = bool(header.get("sort_priority"))
    direction = ("ascending" if header.get("ascending") else "descending") if is_sorted else ""
    name = name if isinstance(name, str) else getattr(name, "__name__", "")
    return {
        "name": name,
        "classes": "gw-check" if name == "action_checkbox" else cl.model_admin.column_classes.get(name, ""),
        "text": header["text"],
        "is_checkbox": name == "action_checkbox",
        "url": header.get("url_primary", "") if header.get("sortable") else "",
        "direction": direction,
    }


def _labelled(cell: SafeString, header: dict[str, Any]) -> SafeString:
    """Add the name of the column, which a narrow page shows beside the value; a title, a box and buttons have none."""
    start, _mark, rest = cell.partition(' class="')
    has_label = not header["classes"].startswith(("gw-card-title", "gw-check", "gw-row-actions"))
    label = format_html(' data-label="{}"', capfirst(header["text"])) if has_label else ""
    return mark_safe(f'{start}{label} class="{header["classes"]} {rest}')
