"""Pages that refresh themselves: what the user does to them stays, and what changes is shown."""

from __future__ import annotations

from typing import Any

import pytest
from django.contrib.sessions.models import Session
from django.db import connection

from tests.browser.conftest import OpenPage, refresh_often
from tests.support.factories import make_job, minutes_ago
from tests.support.operating import execute
from tests.support.results import store_result

pytestmark = pytest.mark.django_db(transaction=True)

REFRESH = """() => new Promise(resolve => {
    document.addEventListener('graphile-worker:refreshed', event => resolve(event.detail.regions.length), {once: true});
    document.dispatchEvent(new Event('graphile-worker:refresh'));
})"""
SELECT = """selector => {
    const text = document.querySelector(selector).firstChild;
    getSelection().setBaseAndExtent(text, 2, text, 9);
}"""


def open_quietly(open_page: OpenPage, path: str, **options: Any) -> Any:
    """Open a page that refreshes only when the test asks for it."""
    page = open_page(path, **options)
    page.select_option("#gw-interval", "0")
    return page


def refresh(page: Any) -> None:
    assert page.evaluate(REFRESH) >= 1


def delete(job_id: int) -> None:
    execute("delete from {schema}._private_jobs where id = %s", [job_id])


def test_list__keeps_what_the_user_did_when_it_changes(open_page: OpenPage) -> None:
    later: dict[str, Any] = {
        "run_at": minutes_ago(-600),
        "attempts": 1,
        "last_error": "ConnectionError: The provider hung up.",
    }
    ids = [make_job("live", **later) for _ in range(30)]
    page = open_quietly(open_page, "job/?state=retrying&q=task:live", viewport={"width": 1200, "height": 500})
    ticked, focused, selected, removed = ids[14], ids[12], ids[10], ids[20]
    row = "tr[data-key='{}']".format
    page.evaluate("window.isSame = true")
    for job_id in (ticked, ids[25]):
        page.check(f"{row(job_id)} td.gw-check input")
    page.focus(f"{row(focused)} .field-number a")
    page.evaluate(SELECT, f"{row(selected)} .gw-error-line bdi")
    page.select_option("#gw-action", index=1)
    page.fill("#gw-q", "half a que")
    page.focus(f"{row(focused)} .field-number a")
    page.evaluate(SELECT, f"{row(selected)} .gw-error-line bdi")
    page.locator(row(focused)).scroll_into_view_if_needed()
    action = page.input_value("#gw-action")
    # A wait for two frames: the browser anchors its scroll position when it paints.
    painted = "() => new Promise(done => requestAnimationFrame(() => requestAnimationFrame(done)))"
    page.evaluate(painted)
    top = page.locator(row(focused)).bounding_box()["y"]

    added = [make_job("live", **(later | {"run_at": minutes_ago(-300)})) for _ in range(4)]
    delete(removed)
    execute("update {schema}._private_jobs set priority = 77 where id = %s", [focused])
    refresh(page)
    page.evaluate(painted)

    assert page.locator(row(added[0])).count() == 1
    assert page.locator(row(removed)).count() == 0
    assert "77" in page.inner_text(row(focused)), "the focused row is renewed, too"
    assert page.eval_on_selector_all("td.gw-check input:checked", "all => all.map(box => Number(box.value))") == [
        ticked, ids[25],
    ]  # fmt: skip
    assert page.evaluate("document.activeElement.closest('tr').dataset.key") == str(focused)
    assert page.evaluate("getSelection().toString()") == "nnectio"
    assert page.locator(row(focused)).bounding_box()["y"] == pytest.approx(top, abs=2)
    assert page.input_value("#gw-action") == action
    assert page.input_value("#gw-q") == "half a que"

    execute("update {schema}._private_jobs set last_error = 'KeyError: 1' where id = any (%s)", [[selected, ticked]])
    refresh(page)
    assert "KeyError" in page.inner_text(row(ticked))
    assert page.evaluate("getSelection().toString()") == "nnectio", "text that is selected waits"
    assert page.inner_text(".gw-refresh-status") == "paused while text is selected"
    page.evaluate("getSelection().removeAllRanges()")
    refresh(page)
    assert "KeyError" in page.inner_text(row(selected))
    assert page.inner_text(".gw-refresh-status") == ""

    delete(focused)
    refresh(page)
    assert page.evaluate("document.activeElement.matches('.field-number a')"), "the link of the next row has the focus"
    assert page.evaluate("document.activeElement.closest('tr').dataset.key") == str(ids[13])
    assert page.evaluate("window.isSame"), "the page itself was not loaded again"


def test_list__gets_its_action_bar_and_keeps_all_that_match(open_page: OpenPage) -> None:
    page = open_quietly(open_page, "job/?state=scheduled&q=task:live")
    assert page.locator("[data-select-all-matches]").count() == 0
    for _ in range(2):
        make_job("live", run_at=minutes_ago(-600))
    refresh(page)
    assert page.is_visible("th [data-select-page]")
    assert page.is_visible("#gw-action")
    page.check("[data-select-all-matches]")
    assert page.locator("td.gw-check input:disabled").count() == 2
    make_job("live", run_at=minutes_ago(-600))
    refresh(page)
    assert page.locator("td.gw-check input:disabled").count() == 3
    assert page.is_checked("[data-select-all-matches]")
    assert "Select all 3 that match" in page.inner_text(".gw-actions")
    page.uncheck("[data-select-all-matches]")
    assert page.locator("td.gw-check input:enabled").count() == 3


def test_page_of_a_job__follows_the_job_to_its_end(open_page: OpenPage, worker_schema: str) -> None:
    job_id = make_job("live", {"order": {"lines": [1, 2]}}, run_at=minutes_ago(1))
    page = open_quietly(open_page, f"job/{job_id}/change/", viewport={"width": 1360, "height": 880})
    page.click(".gw-payload summary >> nth=0")
    page.click("text=Python")
    set_row = "update {schema}._private_jobs set "
    execute(set_row + "locked_by = 'django-worker-1/1', locked_at = now(), attempts = 1 where id = %s", [job_id])
    page.focus("button[value=reschedule]")
    refresh(page)
    assert page.inner_text(".gw-status .gw-badge") == "Running"
    assert page.eval_on_selector_all("button[name=action]", "all => all.map(each => each.value)") == ["cancel"]
    assert page.evaluate("document.activeElement.id") == "gw-job-buttons", "no other button gets the focus"

    unlocked = "locked_by = null, locked_at = null, run_at = now() + interval '1 day', last_error = %s where id = %s"
    execute(set_row + unlocked, ["ValueError: first", job_id])
    refresh(page)
    assert page.inner_text(".gw-error-summary") == "ValueError: first"
    assert page.locator("button[name=action]").count() > 1
    assert "1 attempt failed" in page.inner_text(".gw-timeline")
    page.evaluate(SELECT, ".gw-error-summary")
    execute(set_row + "attempts = 25, " + unlocked, ["ValueError: second", job_id])
    refresh(page)
    assert page.inner_text(".gw-error-summary") == "ValueError: first", "its text is selected"
    page.evaluate("getSelection().removeAllRanges()")
    refresh(page)
    assert page.inner_text(".gw-error-summary") == "ValueError: second"
    assert "failed" in page.get_attribute(".gw-status .gw-badge", "class")

    with connection.cursor() as cursor:
        store_result(cursor, job_id, worker_schema, task="live", value={"pages": 7})
    delete(job_id)
    refresh(page)
    assert page.inner_text("#gw-job .gw-badge") == "Succeeded in 1.0 s"
    assert '"pages"' in page.inner_text("#gw-job-outcome")
    assert page.locator("button[name=action], .gw-error-summary").count() == 0
    assert page.evaluate("document.querySelector('#gw-job-payload details').open") is False, "as the user left it"
    assert page.is_visible("#gw-job-code pre")
    assert page.is_hidden("#gw-interval"), "nothing changes any more"


# Each line is a case: what was shown, what the server sends, and what must be true afterwards.
CASES = """() => {
    const failures = [];
    const region = document.createElement('div');
    region.id = 'gw-case';
    region.setAttribute('data-refresh', '');
    document.querySelector('.gw-page').append(region);
    const send = html => {
        const fresh = document.createElement('template');
        fresh.innerHTML = `<div id="gw-case" data-refresh>${html}</div>`;
        return graphileWorker.patchRegions([[region, fresh.content.firstElementChild]]);
    };
    const check = (name, isTrue) => isTrue || failures.push(name);
    const find = selector => region.querySelector(selector);

    send('<ul><li data-key="a">a<input></li><li data-key="b">b<input></li><li data-key="c">c<input></li></ul>');
    const items = [...region.querySelectorAll('li')];
    items[0].querySelector('input').value = 'typed';
    items[0].querySelector('input').focus();
    send('<ul><li data-key="c">c<input></li><li data-key="d">d</li><li data-key="b">B<input></li>'
        + '<li data-key="a">a<input value="sent"></li></ul>');
    check('order', find('ul').textContent === 'cdBa');
    check('same nodes', items.every(item => item.isConnected));
    check('typed text', items[0].querySelector('input').value === 'typed');
    check('focus', document.activeElement === items[0].querySelector('input'));

    send('<p class="one" title="x">text <b>bold</b> end</p><details><summary>s</summary>t</details>');
    const [paragraph, details] = [find('p'), find('details')];
    const text = paragraph.firstChild;
    paragraph.classList.add('by-script');
    paragraph.append(Object.assign(document.createElement('button'), {textContent: 'by script'}));
    details.open = true;
    send('<p class="one" lang="en">text <b>bolder</b> end</p><details><summary>s</summary>t</details>');
    check('class of a script', paragraph.className === 'one by-script');
    check('node of a script', paragraph.textContent === 'text bolder endby script');
    check('attributes', paragraph.lang === 'en' && !paragraph.hasAttribute('title'));
    check('open', details.open && find('details') === details);
    check('unchanged text', paragraph.firstChild === text);

    send('<p>before</p><script>window.hasRun = true</script><svg viewBox="0 0 1 1"><rect width="1"/></svg>');
    check('no script', window.hasRun === undefined && find('script') === null);
    check('svg', find('rect') instanceof SVGRectElement);

    send('<ol><li data-key="1" data-hash="x">one</li><li data-key="2">two</li></ol>');
    send('<ol><li data-key="2">two</li><li data-key="1" data-same></li></ol>');
    check('unchanged part', find('ol').textContent === 'twoone');
    send('<ol><li data-key="1">one <time title="x">1 s ago</time></li></ol>');
    send('<ol><li data-key="1" data-same="2 s ago"></li></ol>');
    check('time', find('ol').textContent === 'one 2 s ago');
    send('<ol><li data-key="9" data-same></li></ol>');
    check('unknown part', find('ol').children.length === 0 && !region.hasAttribute('data-hash'));

    send('<select><option value="a">A</option><option value="b">B</option></select><input type="checkbox">');
    find('select').value = 'b';
    find('[type=checkbox]').checked = true;
    send('<select><option value="c">C</option><option value="b">B</option></select><input type="checkbox" title="t">');
    check('selected option', find('select').value === 'b');
    check('ticked box', find('[type=checkbox]').checked && find('[type=checkbox]').title === 't');
    region.remove();
    return failures;
}"""


def test_refresh__changes_only_what_differs_waits_while_offline_and_says_when_the_user_is_signed_out(
    open_page: OpenPage,
) -> None:
    page = open_quietly(open_page, "worker/")
    assert page.evaluate(CASES) == []
    page.reload()
    assert page.input_value("#gw-interval") == "0", "the interval is stored"
    page.context.set_offline(True)
    refresh_often(page)
    page.wait_for_selector("text=No answer. Next attempt in")
    page.context.set_offline(False)
    page.wait_for_selector(".gw-refresh:not(.gw-failed-refresh)")
    Session.objects.all().delete()
    page.wait_for_selector("text=You are signed out. Sign in")
    requests: list[str] = []
    page.on("request", lambda request: requests.append(request.url))
    page.evaluate("document.dispatchEvent(new Event('graphile-worker:refresh'))")
    page.click("text=Sign in")
    page.wait_for_selector("#id_username")
    assert "worker/" in page.input_value("input[name=next]")
    assert len([url for url in requests if url.endswith("graphile_worker/worker/") and "login" not in url]) == 1
