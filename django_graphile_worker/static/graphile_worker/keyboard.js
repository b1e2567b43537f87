/* Shortcuts of single keys: j, k, x, o, / and ?. Every page works without this file. */
'use strict';
{
    const KEY = 'graphile_worker.shortcuts';
    const dialog = document.getElementById('gw-shortcuts');
    const choice = dialog?.querySelector('[data-shortcuts-on]');

    function isOn() {
        try {
            return localStorage.getItem(KEY) !== 'off';
        } catch {
            return true;
        }
    }

    /* The link of each row that opens what the row shows. */
    function rowLinks() {
        const links = [...document.querySelectorAll('.gw-page .gw-table tbody tr')].map(
            row => row.querySelector('a.gw-id[href]') || row.querySelector('a[href]')
        );
        return links.filter(link => link?.checkVisibility());
    }

    function currentRow() {
        return document.activeElement?.closest('.gw-table tbody tr') || null;
    }

    function move(step) {
        const links = rowLinks(), row = currentRow();
        const place = links.findIndex(link => link.closest('tr') === row);
        const next = links[place < 0 ? 0 : Math.min(Math.max(place + step, 0), links.length - 1)];
        if (next) {
            next.focus();
            next.closest('tr').scrollIntoView({block: 'nearest'});
        }
        return Boolean(next);
    }

    function toggle() {
        const box = currentRow()?.querySelector('input[name="id"]:not(:disabled)');
        box?.click();
        return Boolean(box);
    }

    function open() {
        const row = currentRow(), link = rowLinks().find(each => each.closest('tr') === row);
        link?.click();
        return Boolean(link);
    }

    function focusSearch() {
        const box = document.getElementById('gw-q');
        box?.focus();
        box?.select();
        return Boolean(box);
    }

    function showHelp() {
        if (dialog) {
            choice.checked = isOn();
            dialog.showModal();
        }
        return Boolean(dialog);
    }

    function leave() {
        const row = currentRow();
        document.activeElement.blur();
        return Boolean(row);
    }

    const ACTIONS = {
        j: () => move(1), k: () => move(-1), x: toggle, o: open, '/': focusSearch, '?': showHelp, Escape: leave
    };

    /* A checkbox is no place to type. */
    function isTyping(target) {
        return Boolean(target.closest?.('input:not([type="checkbox"]), textarea, select, [contenteditable]'));
    }

    document.addEventListener('keydown', event => {
        const isFree = !event.ctrlKey && !event.metaKey && !event.altKey && !event.isComposing && !event.defaultPrevented;
        const act = isFree && !isTyping(event.target) && !dialog?.open && Object.hasOwn(ACTIONS, event.key);
        if (act && (isOn() || event.key === 'Escape') && ACTIONS[event.key]()) {
            event.preventDefault();
        }
    });

    if (dialog) {
        choice.addEventListener('change', () => {
            try {
                localStorage.setItem(KEY, choice.checked ? 'on' : 'off');
            } catch {
                /* Without storage, shortcuts stay on. */
            }
        });
        /* A click beside the dialog closes it. */
        dialog.addEventListener('click', event => {
            if (event.target === dialog) {
                dialog.close();
            }
        });
        for (const button of document.querySelectorAll('[data-shortcuts]')) {
            button.hidden = false;
            button.addEventListener('click', showHelp);
        }
    }
}
