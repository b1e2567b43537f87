/* Describes the task that the user has chosen. Without this file a button does it. */
'use strict';
{
    class TaskDescription {
        constructor(field, button) {
            this.field = field;
            this.abort = null;
            button.hidden = true;
            field.addEventListener('change', () => this.show());
        }

        /* Fetches the form with the chosen task, and takes over its description only. */
        async show() {
            this.abort?.abort();
            this.abort = new AbortController();
            const url = new URL(location.href);
            url.searchParams.delete('from');
            url.searchParams.set('task', this.field.value);
            try {
                const response = await fetch(url, {signal: this.abort.signal, redirect: 'error'});
                const fresh = new DOMParser().parseFromString(await response.text(), 'text/html');
                const current = fresh.getElementById('gw-task-facts');
                if (response.ok && current) {
                    document.getElementById('gw-task-facts').replaceChildren(
                        ...[...current.childNodes].map(node => document.importNode(node, true))
                    );
                }
            } catch {
                /* The description is a help, not a part of the form. */
            }
        }
    }

    const field = document.getElementById('id_task');
    const button = document.querySelector('[data-describe-task]');
    if (field && button) {
        new TaskDescription(field, button);
    }
}
