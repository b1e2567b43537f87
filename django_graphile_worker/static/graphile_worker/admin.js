/* Copying, and actions that continue by themselves. Every page works without this file. */
'use strict';
{
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

    /* An action on many jobs continues by itself until the user stops it. */
    const progressForm = document.querySelector('form[data-continue]');
    if (progressForm) {
        const timer = setTimeout(() => progressForm.requestSubmit(), 1000);
        addEventListener('pagehide', () => clearTimeout(timer));
        // Also of "Stop": a second submission would cancel it.
        progressForm.addEventListener('submit', () => clearTimeout(timer));
    }

    document.addEventListener('graphile-worker:refreshed', prepareCopyButtons);
    prepareCopyButtons();
}
