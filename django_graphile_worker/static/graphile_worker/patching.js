/* Changes a region of the page into what the server sent, and touches only what differs.

   Nodes that stay keep everything that a user has done to them: focus, selected text, ticked boxes, typed text, scroll
   positions and open <details>. Nodes and attributes that scripts added stay, too: only what the server sent before is
   compared with what it sends now. Load this file before scripts that change regions. */
'use strict';
globalThis.graphileWorker ??= {};
{
    const FOCUSABLE = 'a[href], button, input:not([type="hidden"]), select, textarea, summary, [tabindex]';

    /* What the server sent last: a map of the attributes for an element, null for a text. */
    const sent = new WeakMap();
    let hasKept = false;

    function attributesOf(element) {
        return new Map([...element.attributes].map(({name, value}) => [name, value]));
    }

    function remember(node) {
        sent.set(node, node.nodeType === Node.ELEMENT_NODE ? attributesOf(node) : null);
        node.childNodes.forEach(remember);
    }

    function isSelected(node) {
        const selection = document.getSelection();
        return selection !== null && !selection.isCollapsed && selection.containsNode(node, true);
    }

    /* A part that is patched as a whole: half an old and half a new traceback would be wrong. */
    function isPiece(element) {
        return element.matches('[data-key], [data-refresh]') && !element.querySelector('[data-key]');
    }

    /* Leave a node as it is because its text is selected. Without their hashes, the server sends these parts again. */
    function keep(node) {
        hasKept = true;
        for (let each = node; each; each = each.parentElement) {
            each.removeAttribute?.('data-hash');
        }
    }

    function patch(live, fresh) {
        if (live.nodeType !== Node.ELEMENT_NODE) {
            patchText(live, fresh);
        } else if (fresh.hasAttribute('data-same')) {
            return;
        } else if (isPiece(live) && isSelected(live) && live.textContent !== fresh.textContent) {
            keep(live);
        } else {
            patchAttributes(live, fresh);
            patchChildren(live, fresh);
        }
    }

    function patchText(live, fresh) {
        if (live.data === fresh.data) {
            return;
        }
        if (isSelected(live)) {
            keep(live);
        } else {
            live.data = fresh.data;
        }
    }

    function patchAttributes(live, fresh) {
        const before = sent.get(live);
        /* The user opens and closes <details>, not the server. */
        const isOfUser = name => name === 'open' && live.nodeName === 'DETAILS';
        for (const {name, value} of fresh.attributes) {
            if ((before.get(name) !== value || name === 'data-hash') && !isOfUser(name)) {
                live.setAttribute(name, value);
            }
        }
        for (const name of before.keys()) {
            if (!fresh.hasAttribute(name) && !isOfUser(name)) {
                live.removeAttribute(name);
            }
        }
        sent.set(live, attributesOf(fresh));
    }

    function patchChildren(live, fresh) {
        const current = [...live.childNodes].filter(node => sent.has(node));
        const wanted = [...fresh.childNodes].filter(node => !['SCRIPT', '#comment'].includes(node.nodeName));
        const found = match(current, wanted);
        const positions = new Map(current.map((node, position) => [node, position]));
        const staying = inOrder(wanted.map(node => positions.get(found.get(node)) ?? -1), current);
        const used = new Set(found.values());
        for (const node of current) {
            if (used.has(node)) {
                continue;
            }
            if (isSelected(node)) {
                keep(node);
            } else {
                node.remove();
            }
        }
        let next = null;
        for (const node of wanted.reverse()) {
            next = place(live, node, found.get(node), staying, next);
        }
    }

    /* Put a wanted node before `next`, and return it. */
    function place(parent, wanted, existing, staying, next) {
        if (existing === undefined) {
            if (wanted.nodeType === Node.ELEMENT_NODE && wanted.hasAttribute('data-same')) {
                /* The server believes that the page has this part: ask for all of the region. */
                keep(parent);
                return next;
            }
            const added = document.importNode(wanted, true);
            remember(added);
            parent.insertBefore(added, next);
            return added;
        }
        if (!staying.has(existing)) {
            /* moveBefore(), where there is one, keeps the focus and the scroll positions. */
            (parent.moveBefore ?? parent.insertBefore).call(parent, existing, next);
        }
        patch(existing, wanted);
        return existing;
    }

    function keyOf(node) {
        if (node.nodeType !== Node.ELEMENT_NODE) {
            return null;
        }
        const key = node.dataset?.key ?? (node.id || null) ?? (node.nodeName === 'OPTION' ? node.value : null);
        return key === null ? null : `${node.nodeName} ${key}`;
    }

    /* Return the node of the page for each node that the server sent: the one with its key, or the next of its kind. */
    function match(current, wanted) {
        const byKey = new Map(current.map(node => [keyOf(node), node]));
        const others = current.filter(node => keyOf(node) === null);
        const found = new Map();
        let position = 0;
        for (const node of wanted) {
            const key = keyOf(node);
            if (key !== null) {
                if (byKey.has(key)) {
                    found.set(node, byKey.get(key));
                    byKey.delete(key);
                }
                continue;
            }
            let index = position;
            while (index < others.length && others[index].nodeName !== node.nodeName) {
                index += 1;
            }
            if (index < others.length) {
                found.set(node, others[index]);
                position = index + 1;
            }
        }
        return found;
    }

    /* Return the most nodes that are in the right order already: only the others are moved. */
    function inOrder(positions, current) {
        const ends = [], previous = new Map();
        for (const position of positions) {
            if (position < 0) {
                continue;
            }
            let place = ends.findIndex(end => end >= position);
            place = place < 0 ? ends.length : place;
            previous.set(position, place > 0 ? ends[place - 1] : undefined);
            ends[place] = position;
        }
        const staying = new Set();
        for (let position = ends.at(-1); position !== undefined; position = previous.get(position)) {
            staying.add(current[position]);
        }
        return staying;
    }

    /* Return a function that gives the focus back: to its element, or to the element in its place if it has gone. */
    function rememberFocus() {
        const focused = document.activeElement;
        const region = focused?.closest('[data-refresh]');
        if (!region) {
            return () => {};
        }
        const piece = focused.closest('[data-key]');
        const place = [...region.querySelectorAll('[data-key]')].indexOf(piece);
        const control = [...(piece ?? region).querySelectorAll(FOCUSABLE)].indexOf(focused);
        return () => {
            if (document.activeElement === focused && focused.isConnected) {
                return;
            }
            const pieces = [...region.querySelectorAll('[data-key]')];
            const successor = pieces[Math.min(Math.max(place, 0), pieces.length - 1)] ?? region;
            const controls = successor.querySelectorAll(FOCUSABLE);
            /* No other button takes the place of a button: the next key press must not do something else. */
            const neighbour = focused.matches('button') ? region : controls[control] ?? controls[0] ?? region;
            const target = focused.isConnected ? focused : neighbour;
            if (target === region) {
                region.tabIndex = -1;
            }
            target.focus({preventScroll: true});
        };
    }

    /* Return a function that selects the same text again if its nodes were moved. */
    function rememberSelection() {
        const {anchorNode, anchorOffset, focusNode, focusOffset, isCollapsed} = document.getSelection() ?? {isCollapsed: true};
        return () => {
            const selection = document.getSelection();
            const isSame = selection?.anchorNode === anchorNode && selection?.focusNode === focusNode;
            if (!isCollapsed && !isSame && anchorNode.isConnected && focusNode.isConnected) {
                selection.setBaseAndExtent(anchorNode, anchorOffset, focusNode, focusOffset);
            }
        };
    }

    /* Return a function that keeps what the user sees in its place, in browsers that do not do so themselves. */
    function rememberScroll(regions) {
        if (CSS.supports('overflow-anchor', 'auto') || scrollY === 0) {
            return () => {};
        }
        const pieces = regions.flatMap(region => [...region.querySelectorAll('[data-key]')]);
        const anchor = pieces.find(piece => piece.getBoundingClientRect().top >= 0);
        const top = anchor?.getBoundingClientRect().top;
        return () => {
            if (anchor?.isConnected) {
                scrollBy(0, anchor.getBoundingClientRect().top - top);
            }
        };
    }

    /* Patch regions, given as pairs of the shown and the new element; return false if selected text was left as it is. */
    graphileWorker.patchRegions = pairs => {
        hasKept = false;
        const steps = [rememberFocus(), rememberSelection(), rememberScroll(pairs.map(([live]) => live))];
        for (const [live, fresh] of pairs) {
            if (!sent.has(live)) {
                remember(live);
            }
            patch(live, fresh);
        }
        steps.forEach(restore => restore());
        return !hasKept;
    };

    document.querySelectorAll('[data-refresh]').forEach(remember);
}
