"""The style tokens on the page about the admin are those of its style sheet."""

from __future__ import annotations

import re

from tests.docs.pages import page
from tests.unit.admin.test_styles import FOLDER, declarations, defined_tokens, is_token


def test_table__lists_every_style_token_of_the_admin() -> None:
    listed = set(re.findall(r"`(--gw-[\w-]+)`", page("guides/admin.md")))
    own = {name for name, _ in declarations((FOLDER / "admin.css").read_text()) if is_token(name)}
    assert sorted(own - listed) == []
    assert sorted(listed - defined_tokens()) == []
