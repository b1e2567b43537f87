/* Small comforts. Every page works without this file. */
'use strict';
{
    const KEY = 'graphile_worker.refresh';

    /* Live refresh: the page is fetched as it is, and its marked regions are exchanged. */
    class Refresh {
        constructor(panel) {
            this.panel = panel;
            this.select = panel.querySelector('select');
            this.state = panel.querySelector('.gw-live-state');
            this.timer = null;
            this.abort = null;
            this.restore();
            panel.hidden = false;
            this.select.addEventListener('change', () => this.remember());
            document.addEventListener('visibilitychange', () => this.plan());
            this.plan();
        }

        get seconds() {
            return Number(this.select.value);
        }

        restore() {
            let kept = null;
            try {
                kept = localStorage.getItem(KEY);
            } catch {
                return;
            }
            if (kept !== null && [...this.select.options].some(option => option.value === kept)) {
                this.select.value = kept;
            }
        }

        remember() {
            try {
                localStorage.setItem(KEY, this.select.value);
            } catch {
                /* A browser that keeps nothing still refreshes. */
            }
            this.plan();
        }

        /* Nobody looks, or somebody is in the middle of something. */
        get isPaused() {
            return document.hidden || document.querySelector(
                'input[name="id"]:checked, [data-refresh] details[data-touched], [data-refresh] :focus-within'
            ) !== null;
        }

        plan() {
            clearTimeout(this.timer);
            this.panel.classList.toggle('gw-off', this.seconds === 0);
            if (this.seconds > 0 && !document.hidden) {
                this.timer = setTimeout(() => this.run(), this.seconds * 1000);
            }
        }

        async run() {
            if (this.isPaused) {
                this.state.textContent = this.panel.dataset.paused;
                this.plan();
                return;
            }
            this.panel.classList.add('gw-busy');
            this.abort = new AbortController();
            const limit = setTimeout(() => this.abort.abort(), 20000);
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
                    this.exchange(fresh);
                }
                this.panel.classList.remove('gw-broken');
                this.state.textContent = '';
            } catch {
                this.panel.classList.add('gw-broken');
                this.state.textContent = this.panel.dataset.failed;
            } finally {
                clearTimeout(limit);
                this.panel.classList.remove('gw-busy');
                this.plan();
            }
        }

        exchange(fresh) {
            if (fresh.getElementById('gw-gone')) {
                /* The job is done and gone: show the page that says so. */
                const here = document.getElementById('content-main');
                const there = fresh.getElementById('content-main');
                if (here && there) {
                    here.replaceWith(document.importNode(there, true));
                }
                this.select.value = '0';
                return;
            }
            for (const here of document.querySelectorAll('[data-refresh]')) {
                const there = fresh.getElementById(here.id);
                if (there && here.innerHTML !== there.innerHTML) {
                    here.replaceWith(document.importNode(there, true));
                }
            }
            prepare();
        }
    }

    /* The box in the head of a list checks all others. */
    function prepareChecks() {
        for (const box of document.querySelectorAll('[data-check-all]')) {
            box.hidden = false;
            box.addEventListener('change', () => {
                for (const other of document.querySelectorAll('input[name="id"]')) {
                    other.checked = box.checked;
                }
            });
        }
        const all = document.querySelector('[data-all]');
        if (all && !all.dataset.ready) {
            all.dataset.ready = '1';
            all.addEventListener('change', () => {
                for (const other of document.querySelectorAll('input[name="id"], [data-check-all]')) {
                    other.disabled = all.checked;
                }
            });
        }
    }

    function prepareCopying() {
        if (!navigator.clipboard) {
            return;
        }
        for (const place of document.querySelectorAll('.gw-copyable')) {
            if (place.querySelector('button')) {
                continue;
            }
            const button = document.createElement('button');
            button.type = 'button';
            button.className = 'gw-button';
            button.textContent = place.dataset.copy;
            button.addEventListener('click', async () => {
                await navigator.clipboard.writeText(place.querySelector('pre').textContent);
                button.textContent = '✓';
            });
            place.append(button);
        }
    }

    /* A region in which somebody has opened something is left as it is. */
    document.addEventListener('toggle', event => {
        if (event.target.matches?.('[data-refresh] details')) {
            event.target.toggleAttribute('data-touched', event.target.open);
        }
    }, true);

    /* “/” leads to the search box. */
    document.addEventListener('keydown', event => {
        const box = document.getElementById('gw-q');
        const isTyping = event.target.closest?.('input, textarea, select, [contenteditable]');
        if (event.key === '/' && box && !isTyping && !event.ctrlKey && !event.metaKey && !event.altKey) {
            event.preventDefault();
            box.focus();
        }
    });

    function prepare() {
        prepareChecks();
        prepareCopying();
    }

    /* An action on very many jobs goes on by itself until somebody stops it. */
    const rest = document.querySelector('form[data-go-on]');
    if (rest) {
        const timer = setTimeout(() => rest.requestSubmit(), 1000);
        addEventListener('pagehide', () => clearTimeout(timer));
        for (const link of rest.querySelectorAll('a')) {
            link.addEventListener('click', () => clearTimeout(timer));
        }
    }

    prepare();
    const panel = document.querySelector('[data-live]');
    if (panel) {
        new Refresh(panel);
    }
}
