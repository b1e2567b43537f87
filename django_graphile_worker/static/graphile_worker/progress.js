/* Moves the bars of {% job_progress %}: asks for the progress of each job once a second, until the job has ended. */
'use strict';
{
    const INTERVAL = 1000;
    const LONGEST_INTERVAL = 30000;

    class JobProgress {
        constructor(element) {
            this.element = element;
            this.bar = element.querySelector('.gw-progress-bar');
            this.delay = INTERVAL;
            this.timer = null;
            document.addEventListener('visibilitychange', () => this.schedule(0));
            this.schedule(0);
        }

        schedule(delay) {
            clearTimeout(this.timer);
            if (!this.isOver && !document.hidden) {
                this.timer = setTimeout(() => this.ask(), delay);
            }
        }

        async ask() {
            try {
                const response = await fetch(this.element.dataset.gwProgress, {headers: {Accept: 'application/json'}});
                if (response.status === 404 || response.status === 403) {
                    /* The token is too old; it does not become valid again. */
                    this.isOver = true;
                    return;
                }
                if (!response.ok) {
                    throw new Error(String(response.status));
                }
                this.show(await response.json());
                this.delay = INTERVAL;
            } catch {
                this.delay = Math.min(this.delay * 2, LONGEST_INTERVAL);
            }
            this.schedule(this.delay);
        }

        show(state) {
            if (state.percent === null) {
                this.bar.removeAttribute('value');
            } else {
                this.bar.value = state.percent;
            }
            this.element.dataset.status = state.status;
            this.setText('.gw-progress-status', state.status_name);
            this.setText('.gw-progress-message bdi', state.progress ? state.progress.message : '');
            if (state.is_finished) {
                this.isOver = true;
                this.finish(state);
            }
        }

        /* Only changed texts are set: a screen reader reads them out. */
        setText(selector, text) {
            const element = this.element.querySelector(selector);
            if (element && element.textContent !== text) {
                element.textContent = text;
            }
        }

        finish(state) {
            const event = new CustomEvent('graphile-worker:finished', {bubbles: true, cancelable: true, detail: state});
            const url = this.element.dataset.finishedUrl;
            if (this.element.dispatchEvent(event) && url) {
                location.assign(url);
            }
        }
    }

    for (const element of document.querySelectorAll('[data-gw-progress]')) {
        /* The page may include this file several times. */
        if (!element.dataset.gwReady) {
            element.dataset.gwReady = '1';
            new JobProgress(element);
        }
    }
}
