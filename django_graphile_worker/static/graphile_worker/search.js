/* Completion in the search box of the jobs: an ARIA combobox with a listbox. Without this file, the search works. */
'use strict';
{
    const DELAY = 150;
    /* The condition before the cursor: it ends at white space and parentheses, unless these are in quotes. */
    const CONDITION = /(?:"(?:[^"\\]|\\.)*"?|[^\s"()])*$/u;

    class Completion {
        constructor(input) {
            this.input = input;
            this.timer = null;
            this.abort = null;
            this.active = -1;
            this.options = [];
            this.build();
            input.addEventListener('input', () => this.schedule());
            input.addEventListener('keydown', event => this.press(event));
            input.addEventListener('blur', () => this.close());
        }

        build() {
            this.input.removeAttribute('list');
            this.list = document.createElement('ul');
            this.list.id = 'gw-completions';
            this.list.className = 'gw-completions';
            this.list.setAttribute('role', 'listbox');
            this.list.setAttribute('aria-label', this.input.dataset.label);
            this.list.hidden = true;
            this.status = document.createElement('span');
            this.status.className = 'visually-hidden';
            this.status.setAttribute('role', 'status');
            this.input.after(this.list, this.status);
            for (const [name, value] of [
                ['role', 'combobox'], ['aria-autocomplete', 'list'], ['aria-expanded', 'false'],
                ['aria-controls', this.list.id], ['aria-haspopup', 'listbox']
            ]) {
                this.input.setAttribute(name, value);
            }
        }

        get isOpen() {
            return !this.list.hidden;
        }

        /* What is typed of the condition at the cursor, and where it begins. */
        get typed() {
            const before = this.input.value.slice(0, this.input.selectionStart);
            const found = CONDITION.exec(before)[0];
            const text = found.replace(/^-+/u, '');
            return {text, start: before.length - text.length, end: before.length};
        }

        schedule() {
            clearTimeout(this.timer);
            this.timer = setTimeout(() => this.request(), DELAY);
        }

        async request() {
            const {text} = this.typed;
            this.abort?.abort();
            if (text === '') {
                this.close();
                return;
            }
            this.abort = new AbortController();
            const url = new URL(this.input.dataset.completeUrl, location.href);
            url.searchParams.set('typed', text);
            try {
                const response = await fetch(url, {signal: this.abort.signal, redirect: 'error'});
                if (!response.ok) {
                    throw new Error(String(response.status));
                }
                const {completions} = await response.json();
                if (document.activeElement === this.input && this.typed.text === text) {
                    this.show(completions.filter(each => each.text !== text));
                }
            } catch (error) {
                if (error.name !== 'AbortError') {
                    this.close();
                }
            }
        }

        show(completions) {
            this.list.replaceChildren(...completions.map((each, place) => this.option(each, place)));
            this.options = completions;
            this.activate(-1);
            this.list.hidden = completions.length === 0;
            this.input.setAttribute('aria-expanded', String(this.isOpen));
            this.status.textContent = this.input.dataset.found.replace('%s', String(completions.length));
        }

        option({text, remark}, place) {
            const item = document.createElement('li');
            item.id = `gw-completion-${place}`;
            item.setAttribute('role', 'option');
            item.setAttribute('aria-selected', 'false');
            const name = document.createElement('bdi');
            name.textContent = text;
            const quiet = document.createElement('span');
            quiet.className = 'gw-quiet';
            quiet.textContent = remark;
            item.append(name, ' ', quiet);
            /* The input keeps the focus. */
            item.addEventListener('mousedown', event => event.preventDefault());
            item.addEventListener('click', () => this.choose(place));
            return item;
        }

        activate(place) {
            this.active = place;
            for (const [number, item] of [...this.list.children].entries()) {
                item.setAttribute('aria-selected', String(number === place));
            }
            const item = this.list.children[place];
            if (item) {
                this.input.setAttribute('aria-activedescendant', item.id);
                item.scrollIntoView({block: 'nearest'});
            } else {
                this.input.removeAttribute('aria-activedescendant');
            }
        }

        move(step) {
            const number = this.options.length;
            if (!this.isOpen) {
                this.request();
            } else if (number > 0) {
                /* The place after the last option, and before the first, is the input itself. */
                this.activate((this.active + 1 + step + number + 1) % (number + 1) - 1);
            }
        }

        press(event) {
            if (event.isComposing || event.ctrlKey || event.metaKey || event.altKey) {
                return;
            }
            const isChosen = this.isOpen && this.active >= 0;
            if (event.key === 'ArrowDown' || event.key === 'ArrowUp') {
                event.preventDefault();
                this.move(event.key === 'ArrowDown' ? 1 : -1);
            } else if ((event.key === 'Enter' || (event.key === 'Tab' && !event.shiftKey)) && isChosen) {
                event.preventDefault();
                this.choose(this.active);
            } else if (event.key === 'Escape' && this.isOpen) {
                event.preventDefault();
                this.close();
            }
        }

        choose(place) {
            const {start, end} = this.typed;
            const {text} = this.options[place];
            const isName = text.endsWith(':');
            this.input.setRangeText(isName ? text : `${text} `, start, end, 'end');
            this.close();
            if (isName) {
                this.schedule();
            }
        }

        close() {
            clearTimeout(this.timer);
            this.abort?.abort();
            this.activate(-1);
            this.list.hidden = true;
            this.input.setAttribute('aria-expanded', 'false');
            this.status.textContent = '';
        }
    }

    for (const input of document.querySelectorAll('input[data-complete-url]')) {
        new Completion(input);
    }
}
