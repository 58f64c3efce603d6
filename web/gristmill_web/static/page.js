// What htmx does not do by itself: no polling in hidden tabs or when paused, patience when the server is away,
// and a banner that says so. Everything else works without this file.
(() => {
  "use strict";

  const LONGEST_PAUSE_MS = 30000;
  const page = document.getElementById("page");
  const away = document.getElementById("away");
  const pause = document.getElementById("pause");
  if (!page || !window.htmx) return;

  let paused = false;
  let failures = 0;
  let notBefore = 0;

  const refresh = () => window.htmx.trigger(page, "refresh");

  // A tick that is not wanted is called off before htmx queues it.
  page.addEventListener("htmx:config:request", (event) => {
    const cause = event.detail.ctx.sourceEvent;
    const unwanted = document.hidden || paused || Date.now() < notBefore;
    if (cause && cause.type === "every" && unwanted) event.preventDefault();
  });

  const answered = () => {
    failures = 0;
    notBefore = 0;
    away.hidden = true;
  };

  const failed = () => {
    failures += 1;
    notBefore = Date.now() + Math.min(LONGEST_PAUSE_MS, 1000 * 2 ** failures);
    // One lost request is no news.
    if (failures > 1) away.hidden = false;
  };

  page.addEventListener("htmx:error", failed);
  page.addEventListener("htmx:after:request", (event) => {
    if (event.detail.ctx.response.status < 400) answered();
    else failed();
  });

  document.addEventListener("visibilitychange", () => {
    if (!document.hidden && !paused) {
      notBefore = 0;
      refresh();
    }
  });

  pause.hidden = false;
  pause.addEventListener("click", () => {
    paused = !paused;
    pause.setAttribute("aria-pressed", String(paused));
    pause.textContent = paused ? "Paused" : "Pause";
    if (!paused) refresh();
  });
})();
