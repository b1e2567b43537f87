/* Automatic refresh and copying. Every page works without this file. */
'use strict';
{
    const KEY = 'graphile_worker.refresh';

    /* Fetches the page again, and replaces the regions that are marked with data-refresh. */
    class Refresh {
        constructor(control) {
            this.control = control;
            this.select = control.querySelector('select');
            this.status = control.querySelector('.gw-refresh-status');
            this.timer = null;
            this.abort = null;
            this.restore();
            control.hidden = false;
            this.select.addEventListener('change', () => this.store());
            document.addEventListener('visibilitychange', () => this.schedule());
            this.schedule();
        }

        get seconds() {
            return Number(this.select.value);
        }

        restore() {
            let stored = null;
            try {
                stored = localStorage.getItem(KEY);
            } catch {
                return;
            }
            if (stored !== null && [...this.select.options].some(option => option.value === stored)) {
                this.select.value = stored;
            }
        }

        store() {
            try {
                localStorage.setItem(KEY, this.select.value);
            } catch {
                /* Without storage, the interval applies to this page only. */
            }
            this.schedule();
        }

        /* The tab is hidden, or the user has selected a job, opened an element or focused a control. */
        get isPaused() {
            return document.hidden || document.querySelector(
                'input[name="id"]:checked, [data-refresh] details[data-opened], [data-refresh] :focus-within'
            ) !== null;
        }

        schedule() {
            clearTimeout(this.timer);
            this.control.classList.toggle('gw-off', this.seconds === 0);
            if (this.seconds > 0 && !document.hidden) {
                this.timer = setTimeout(() => this.run(), this.seconds * 1000);
            }
        }

        async run() {
            if (this.isPaused) {
                this.status.textContent = this.control.dataset.paused;
                this.schedule();
                return;
            }
            this.control.classList.add('gw-busy');
            this.abort = new AbortController();
            const timeout = setTimeout(() => this.abort.abort(), 20000);
            try {
                const response = await fetch(location.href, {
                    headers: {'X-Requested-With': 'XMLHttpRequest'}, signal: this.abort.signal, redirect: 'error'
                });
                const isHtml = (response.headers.get('Content-Type') || '').startsWith('text/html');
                if (!isHtml || !response.ok) {
                    throw new Error(String(response.status));
                }
                const fresh = new DOMParser().parseFromString(await response.text(), 'text/html');
                if (!this.isPaused) {
                    this.replaceRegions(fresh);
                }
                this.control.classList.remove('gw-failed-refresh');
                this.status.textContent = '';
            } catch {
                this.control.classList.add('gw-failed-refresh');
                this.status.textContent = this.control.dataset.failed;
            } finally {
                clearTimeout(timeout);
                this.control.classList.remove('gw-busy');
                this.schedule();
            }
        }

        replaceRegions(fresh) {
            if (fresh.getElementById('gw-missing-job')) {
                /* The job has been deleted: show the whole response, and stop refreshing. */
                const shown = document.getElementById('content-main');
                const current = fresh.getElementById('content-main');
                if (shown && current) {
                    shown.replaceWith(document.importNode(current, true));
                }
                this.select.value = '0';
                return;
            }
            for (const shown of document.querySelectorAll('[data-refresh]')) {
                const current = fresh.getElementById(shown.id);
                if (current && shown.innerHTML !== current.innerHTML) {
                    shown.replaceWith(document.importNode(current, true));
                }
            }
            prepare();
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

    /* Mark elements that the user has opened: a refresh would close them. */
    document.addEventListener('toggle', event => {
        if (event.target.matches?.('[data-refresh] details')) {
            event.target.toggleAttribute('data-opened', event.target.open);
        }
    }, true);

    function prepare() {
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

    prepare();
    const control = document.querySelector('[data-refresh-control]');
    if (control) {
        new Refresh(control);
    }
}
