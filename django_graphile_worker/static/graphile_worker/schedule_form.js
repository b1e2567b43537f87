/* Checks the form of a schedule while the user types, and fetches the payload fields of another task. The server checks:
   it has the parser of the workers. Without this file, buttons do both. */
'use strict';
{
    const DELAY = 350;

    class ScheduleForm {
        constructor(form) {
            this.form = form;
            this.touched = new Set();
            this.timer = null;
            /* By URL: a check must not abort the request for the fields of a task. */
            this.requests = new Map();
            for (const button of form.querySelectorAll('[data-without-script]')) {
                button.hidden = true;
            }
            form.addEventListener('input', event => this.note(event.target, DELAY));
            form.addEventListener('change', event => this.changed(event.target));
        }

        changed(field) {
            if (field.name === 'task') {
                this.describe();
            } else {
                this.note(field, 0);
            }
        }

        note(field, delay) {
            if (!field.name || field.name === 'task') {
                return;
            }
            this.touched.add(field.name);
            clearTimeout(this.timer);
            this.timer = setTimeout(() => this.check(), delay);
        }

        async send(url, extra) {
            this.requests.get(url)?.abort();
            const request = new AbortController();
            this.requests.set(url, request);
            const data = new FormData(this.form);
            if (extra) {
                data.append(extra, '1');
            }
            const response = await fetch(url, {method: 'POST', body: data, signal: request.signal, redirect: 'error'});
            if (!response.ok) {
                throw new Error(response.statusText);
            }
            return response;
        }

        async check() {
            /* A project may have left the preview out. */
            const preview = document.getElementById('gw-preview') ?? document.createElement('div');
            preview.setAttribute('aria-busy', 'true');
            try {
                const answer = await (await this.send(this.form.dataset.check)).json();
                replace(preview, answer.preview);
                this.show(answer.errors);
                preview.removeAttribute('aria-busy');
            } catch (error) {
                /* The check is a help: saving checks again. Another check has taken the place of one that was aborted. */
                if (error.name !== 'AbortError') {
                    preview.removeAttribute('aria-busy');
                }
            }
        }

        /* Shows the errors of the fields that the user has touched, and removes those that are corrected. */
        show(errors) {
            for (const row of this.form.querySelectorAll('[data-field]')) {
                const name = row.dataset.field;
                const texts = errors[name] ?? [];
                const list = row.querySelector('ul.errorlist');
                const isNew = texts.length && (list || this.touched.has(name));
                const shown = list ? [...list.children].map(item => item.textContent) : [];
                if (shown.join('\n') === (isNew ? texts.join('\n') : '')) {
                    continue;
                }
                list?.remove();
                row.classList.toggle('errors', Boolean(isNew));
                if (isNew) {
                    place(row, texts);
                }
                for (const field of row.querySelectorAll('input, select, textarea')) {
                    describe(field, isNew ? `${field.id}_error` : '');
                }
            }
        }

        async describe() {
            const region = document.getElementById('gw-schedule-payload');
            region.setAttribute('aria-busy', 'true');
            try {
                const text = await (await this.send(this.form.action, 'describe')).text();
                const fresh = new DOMParser().parseFromString(text, 'text/html').getElementById(region.id);
                if (fresh) {
                    region.replaceWith(document.importNode(fresh, true));
                }
            } catch (error) {
                if (error.name !== 'AbortError') {
                    this.form.querySelector('[name=describe]').hidden = false;
                    region.removeAttribute('aria-busy');
                }
            }
        }
    }

    function replace(region, markup) {
        const fresh = new DOMParser().parseFromString(markup, 'text/html').body;
        region.replaceChildren(...[...fresh.childNodes].map(node => document.importNode(node, true)));
    }

    function place(row, texts) {
        const list = document.createElement('ul');
        list.className = 'errorlist';
        const field = row.querySelector('input, select, textarea');
        list.id = field ? `${field.id}_error` : '';
        for (const text of texts) {
            const item = document.createElement('li');
            item.textContent = text;
            list.append(item);
        }
        (field ? field.closest('.gw-field > div') : row).prepend(list);
    }

    function describe(field, error) {
        const others = (field.getAttribute('aria-describedby') ?? '').split(' ').filter(id => id && !id.endsWith('_error'));
        const ids = error ? [error, ...others] : others;
        if (ids.length) {
            field.setAttribute('aria-describedby', ids.join(' '));
        } else {
            field.removeAttribute('aria-describedby');
        }
        field.toggleAttribute('aria-invalid', Boolean(error));
        if (error) {
            field.setAttribute('aria-invalid', 'true');
        }
    }

    const form = document.querySelector('.gw-schedule-form');
    if (form) {
        new ScheduleForm(form);
    }
}
