/* The crosshair of the charts: the values of a period, by mouse, by touch and by keyboard.

   The values are read from the table below the chart. Nothing is stored in the chart, which a refresh replaces, and all
   events are received by the document. Without this file, the tables have the values. */
'use strict';
{
    const root = document.querySelector('.gw-page') || document.body;
    /* The chart and the period that the crosshair shows: an id and a number, which outlive a refresh. */
    let shown = null;

    function element(className) {
        const made = document.createElement('div');
        made.className = className;
        made.hidden = className !== 'gw-spoken';
        root.append(made);
        return made;
    }
    const line = element('gw-crosshair');
    const readout = element('gw-readout');
    line.setAttribute('aria-hidden', 'true');
    readout.setAttribute('aria-hidden', 'true');
    /* Screen readers read changes of this element when they have nothing else to say. */
    const spoken = element('gw-spoken');
    spoken.setAttribute('role', 'status');
    spoken.setAttribute('aria-live', 'polite');

    const rowsOf = plot => plot.closest('figure').querySelectorAll('.gw-figures tbody tr');

    function valuesOf(plot, index) {
        const row = rowsOf(plot)[index];
        const names = plot.closest('figure').querySelectorAll('.gw-figures thead th');
        return {
            label: row.cells[0].textContent,
            series: [...row.cells].slice(1).map((cell, place) => ({
                name: names[place + 1].textContent, value: cell.textContent
            }))
        };
    }

    function hide() {
        shown = null;
        line.hidden = readout.hidden = true;
    }

    function writeReadout(plot, values) {
        const marks = plot.closest('figure').querySelectorAll('.gw-legend .gw-key-mark');
        const title = document.createElement('strong');
        title.textContent = values.label;
        readout.replaceChildren(title, ...values.series.map(({name, value}, place) => {
            const entry = document.createElement('span');
            const label = document.createElement('bdi');
            const number = document.createElement('b');
            label.textContent = name;
            number.textContent = value;
            entry.append(...(marks[place] ? [marks[place].cloneNode(true)] : []), label, number);
            return entry;
        }));
    }

    /* Both elements are placed relative to the page: scrolling moves them with the chart. */
    function place(plot, index) {
        const origin = (line.offsetParent || document.documentElement).getBoundingClientRect();
        const box = plot.getBoundingClientRect();
        const x = box.left - origin.left + box.width * (index + .5) / rowsOf(plot).length;
        const y = box.top - origin.top;
        line.style.left = `${x}px`;
        line.style.top = `${y}px`;
        line.style.height = `${box.height}px`;
        const width = readout.offsetWidth;
        const isRight = x + 12 + width <= box.right - origin.left;
        const left = isRight ? x + 12 : Math.max(x - 12 - width, box.left - origin.left - 40);
        readout.style.left = `${left}px`;
        readout.style.top = `${y - 4}px`;
    }

    function show(plot, index, speaks) {
        const last = rowsOf(plot).length - 1;
        if (last < 0) {
            return;
        }
        const period = Math.min(Math.max(index, 0), last);
        shown = {id: plot.id, period, isLast: period === last};
        const values = valuesOf(plot, period);
        line.hidden = readout.hidden = false;
        writeReadout(plot, values);
        place(plot, period);
        if (speaks) {
            spoken.textContent = [values.label, ...values.series.map(({name, value}) => `${name}: ${value}`)].join(', ');
        }
    }

    const plotOf = target => target.closest?.('.gw-plot');

    function follow(event) {
        const plot = plotOf(event.target);
        if (plot) {
            const box = plot.getBoundingClientRect();
            show(plot, Math.floor((event.clientX - box.left) / box.width * rowsOf(plot).length), false);
        } else if (shown && event.pointerType !== 'touch' && document.activeElement?.id !== shown.id) {
            hide();
        }
    }
    document.addEventListener('pointermove', follow);
    document.addEventListener('pointerdown', event => plotOf(event.target) ? follow(event) : hide());

    document.addEventListener('keydown', event => {
        const plot = plotOf(event.target);
        if (!plot || event.ctrlKey || event.metaKey || event.altKey) {
            return;
        }
        const last = rowsOf(plot).length - 1;
        const current = shown?.id === plot.id ? shown.period : last + (event.key === 'ArrowLeft' ? 1 : 0);
        const steps = {
            ArrowLeft: current - 1, ArrowRight: current + 1, PageUp: current - 10, PageDown: current + 10, Home: 0, End: last
        };
        if (event.key in steps) {
            event.preventDefault();
            show(plot, steps[event.key], true);
        } else if (event.key === 'Escape') {
            hide();
        }
    });
    document.addEventListener('focusout', event => {
        if (plotOf(event.target)?.id === shown?.id) {
            hide();
        }
    });

    /* A refresh has changed the chart, or the window has: show the same period again. */
    function renew() {
        const plot = shown && document.getElementById(shown.id);
        if (plot) {
            show(plot, shown.isLast ? rowsOf(plot).length - 1 : shown.period, false);
        } else if (shown) {
            hide();
        }
    }
    let isWaiting = false;
    const charts = document.getElementById('gw-charts');
    if (charts) {
        /* The parent: a refresh may replace the element itself. */
        new MutationObserver(() => {
            if (shown && !isWaiting) {
                isWaiting = true;
                requestAnimationFrame(() => {
                    isWaiting = false;
                    renew();
                });
            }
        }).observe(charts.parentElement, {childList: true, subtree: true, characterData: true});
    }
    addEventListener('resize', renew);

    /* A selection applies at once; the button is for browsers without scripts. */
    for (const select of document.querySelectorAll('select[data-submit]')) {
        const button = select.form.querySelector('button');
        button.hidden = true;
        select.addEventListener('change', () => select.form.requestSubmit());
    }
}
