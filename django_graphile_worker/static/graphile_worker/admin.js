/* Selection, copying, and a keyboard shortcut. Every page works without this file. */
'use strict';
{
    /* The checkbox in the header selects all jobs of the page. “All that match” disables the other checkboxes. */
    document.addEventListener('change', event => {
        if (event.target.matches('[data-select-page]')) {
            for (const other of document.querySelectorAll('input[name="id"]')) {
                other.checked = event.target.checked;
            }
        } else if (event.target.matches('[data-select-all-matches]')) {
            prepareSelection();
        }
    });

    /* A refresh adds rows: their checkboxes follow “all that match”, too. */
    function prepareSelection() {
        const isAll = document.querySelector('[data-select-all-matches]')?.checked ?? false;
        for (const box of document.querySelectorAll('input[name="id"], [data-select-page]')) {
            box.disabled = isAll;
        }
        for (const box of document.querySelectorAll('[data-select-page]')) {
            box.hidden = false;
        }
    }

    /* A button that copies the code beside it. */
    function prepareCopyButtons() {
        if (!navigator.clipboard) {
            return;
        }
        for (const element of document.querySelectorAll('.gw-copyable')) {
            if (element.querySelector('button')) {
                continue;
            }
            const button = document.createElement('button');
            button.type = 'button';
            button.className = 'gw-button';
            button.textContent = element.dataset.copy;
            button.addEventListener('click', async () => {
                await navigator.clipboard.writeText(element.querySelector('pre').textContent);
                button.textContent = '✓';
            });
            element.append(button);
        }
    }

    /* “/” moves the focus to the search box. */
    document.addEventListener('keydown', event => {
        const searchBox = document.getElementById('gw-q');
        const isTyping = event.target.closest?.('input, textarea, select, [contenteditable]');
        if (event.key === '/' && searchBox && !isTyping && !event.ctrlKey && !event.metaKey && !event.altKey) {
            event.preventDefault();
            searchBox.focus();
        }
    });

    function prepare() {
        prepareSelection();
        prepareCopyButtons();
    }

    /* An action on many jobs continues by itself until the user stops it. */
    const progressForm = document.querySelector('form[data-continue]');
    if (progressForm) {
        const timer = setTimeout(() => progressForm.requestSubmit(), 1000);
        addEventListener('pagehide', () => clearTimeout(timer));
        for (const link of progressForm.querySelectorAll('a')) {
            link.addEventListener('click', () => clearTimeout(timer));
        }
    }

    document.addEventListener('graphile-worker:refreshed', prepare);
    prepare();
}
