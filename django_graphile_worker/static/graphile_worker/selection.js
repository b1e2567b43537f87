/* Selects jobs in the list. The checkboxes hold the selection; the list works without this file. */
'use strict';
{
    const BOXES = 'td.gw-check input';
    const boxes = () => [...document.querySelectorAll(BOXES)];
    const isAll = () => document.querySelector('[data-select-all-matches]')?.checked === true;
    /* The value of the box that was clicked last: a refresh may replace the box itself. */
    let last = null;

    /* Show the number of selected jobs, and whether all of the page are. */
    function show() {
        const all = boxes(), number = all.filter(box => box.checked).length;
        for (const output of document.querySelectorAll('[data-selected]')) {
            const text = isAll() ? output.dataset.all : number ? output.dataset.some.replace('{number}', number) : '';
            if (output.textContent !== text) {
                output.textContent = text;
            }
        }
        for (const box of document.querySelectorAll('[data-select-page]')) {
            box.checked = all.length > 0 && number === all.length;
            box.indeterminate = number > 0 && number < all.length;
        }
        for (const box of document.querySelectorAll(`${BOXES}, [data-select-page]`)) {
            box.disabled = isAll();
        }
        for (const element of document.querySelectorAll('[data-scripted][hidden]')) {
            element.hidden = false;
        }
    }

    document.addEventListener('change', event => {
        if (event.target.matches?.('[data-select-page]')) {
            for (const box of boxes()) {
                box.checked = event.target.checked;
            }
        }
        if (event.target.matches?.(`${BOXES}, [data-select-page], [data-select-all-matches]`)) {
            show();
        }
    });

    /* Shift and a click select or unselect all rows between this box and the last. */
    document.addEventListener('click', event => {
        const box = event.target;
        if (!box.matches?.(BOXES)) {
            return;
        }
        if (event.shiftKey && last !== null && last !== box.value) {
            const all = boxes(), places = [last, box.value].map(value => all.findIndex(each => each.value === value));
            if (!places.includes(-1)) {
                const [from, to] = places.sort((a, b) => a - b);
                for (const each of all.slice(from, to + 1)) {
                    each.checked = box.checked;
                }
            }
        }
        last = box.value;
        show();
    });

    /* With Shift, a click would also select text. */
    document.addEventListener('mousedown', event => {
        if (event.shiftKey && event.target.closest?.('.gw-check')) {
            event.preventDefault();
        }
    });

    /* A refresh changes the rows. */
    const list = document.querySelector('.gw-jobs-form');
    if (list) {
        new MutationObserver(show).observe(list, {childList: true, subtree: true});
    }
    addEventListener('pageshow', show);
    show();
}
