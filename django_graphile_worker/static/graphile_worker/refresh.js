/* Refreshes the page: asks the server for the regions that changed, and patches them.

   A region is an element with data-refresh and an id. An element inside it with data-key, such as a row, is sent only
   if it changed. After each refresh that changed something, `graphile-worker:refreshed` is sent to the document;
   `graphile-worker:refresh` asks for a refresh now. */
'use strict';
{
    const KEY = 'graphile_worker.refresh';
    const HEADER = 'X-Graphile-Worker-Refresh';
    const TIMEOUT = 20000;
    const LONGEST_DELAY = 300;
    /* Proxies limit the length of a header. */
    const MAX_HASHES = 300;

    class Refresh {
        constructor(control) {
            this.control = control;
            this.select = control.querySelector('select');
            this.status = control.querySelector('.gw-refresh-status');
            this.timer = null;
            this.request = null;
            this.failures = 0;
            this.isStopped = false;
            this.last = Date.now();
            this.restore();
            control.hidden = false;
            this.select.addEventListener('change', () => this.store());
            document.addEventListener('visibilitychange', () => this.schedule());
            document.addEventListener('graphile-worker:refresh', () => this.run());
            addEventListener('online', () => this.schedule(0));
            addEventListener('pagehide', () => this.request?.abort());
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
            this.isStopped = false;
            this.failures = 0;
            this.say('');
            this.schedule();
        }

        /* Wait for the interval, less the time that a hidden tab has waited already; longer after each failure. */
        schedule(seconds = Math.min(this.seconds * 2 ** this.failures, LONGEST_DELAY)) {
            clearTimeout(this.timer);
            this.control.classList.toggle('gw-off', this.seconds === 0 || this.isStopped);
            if (this.seconds > 0 && !this.isStopped && !document.hidden) {
                this.timer = setTimeout(() => this.run(), Math.max(this.last + seconds * 1000 - Date.now(), 0));
            }
        }

        async run() {
            if (this.request || this.isStopped || document.hidden) {
                return;
            }
            clearTimeout(this.timer);
            this.control.classList.add('gw-busy');
            this.request = new AbortController();
            const timeout = setTimeout(() => this.request.abort(), TIMEOUT);
            try {
                await this.ask();
            } catch {
                this.fail();
            } finally {
                clearTimeout(timeout);
                this.request = null;
                this.last = Date.now();
                this.control.classList.remove('gw-busy');
                this.schedule();
            }
        }

        async ask() {
            if (navigator.onLine === false) {
                throw new Error('offline');
            }
            const response = await fetch(location.href, {
                headers: {[HEADER]: hashes()}, signal: this.request.signal, redirect: 'manual', cache: 'no-store'
            });
            if (response.status === 403) {
                this.stop(this.control.dataset.forbidden);
            } else if (isLogin(response)) {
                this.stop(this.control.dataset.signedOut, this.control.dataset.signIn);
            } else if (!response.ok) {
                throw new Error(String(response.status));
            } else {
                const isWhole = response.status === 204 || show(await response.text());
                this.failures = 0;
                this.control.classList.remove('gw-failed-refresh');
                this.say(isWhole ? '' : this.control.dataset.paused);
                if (document.querySelector('[data-refresh-end]')) {
                    /* The job has ended: nothing changes any more. */
                    this.stop('');
                    this.control.hidden = true;
                }
            }
        }

        fail() {
            this.failures += 1;
            this.control.classList.add('gw-failed-refresh');
            const seconds = Math.min(this.seconds * 2 ** this.failures, LONGEST_DELAY);
            this.say(this.control.dataset.failed.replace('{seconds}', String(Math.round(seconds))));
        }

        /* Refresh no more, until the user selects an interval; the link loads the page again. */
        stop(text, linkText = '') {
            this.isStopped = true;
            this.control.classList.toggle('gw-failed-refresh', text !== '');
            this.say(text);
            if (linkText) {
                const link = document.createElement('a');
                link.href = location.href;
                link.textContent = linkText;
                this.status.append(' ', link);
            }
        }

        /* Only a changed text is set: a screen reader reads it out. */
        say(text) {
            if (this.status.textContent !== text) {
                this.status.textContent = text;
            }
        }
    }

    /* A user whose session has ended is redirected to the login page, or is shown it at this URL. */
    function isLogin(response) {
        return response.type === 'opaqueredirect' || response.status === 401
            || (response.ok && !response.headers.has(HEADER));
    }

    /* The hashes of the parts that the page has. */
    function hashes() {
        const elements = [...document.querySelectorAll('[data-hash]')].slice(0, MAX_HASHES);
        return elements.map(element => element.dataset.hash).join(' ') || 'none';
    }

    /* Patch the regions of a response; return false if selected text was left as it is. */
    function show(text) {
        const fresh = new DOMParser().parseFromString(text, 'text/html');
        const pairs = [...fresh.querySelectorAll('template')].map(template => template.content.firstElementChild)
            .map(region => [document.getElementById(region.id), region])
            .filter(([shown]) => shown !== null);
        if (fresh.title && fresh.title !== document.title) {
            document.title = fresh.title;
        }
        const isWhole = graphileWorker.patchRegions(pairs);
        document.dispatchEvent(new CustomEvent('graphile-worker:refreshed', {detail: {regions: pairs.map(([shown]) => shown)}}));
        return isWhole;
    }

    const control = document.querySelector('[data-refresh-control]');
    if (control) {
        new Refresh(control);
    }
}
