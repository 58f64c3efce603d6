// What htmx does not do by itself: no polling in hidden tabs or when paused, no swap of what has not changed, patience
// and a banner when the server is away, times in the browser's zone, ages that grow. All of it is a comfort: what
// stands on the page is there without this file.
(() => {
  "use strict";

  const LONGEST_PAUSE_MS = 30000;
  const NEWS_EVERY_MS = 10000;
  const page = document.getElementById("page");
  const away = document.getElementById("away");
  const line = document.getElementById("status");
  const pause = document.getElementById("pause");
  const asOf = document.getElementById("as-of");
  if (!page) return;

  // --- times ---------------------------------------------------------------------------------------------

  // Redis's clock minus that of this browser.
  let offset = Number(page.dataset.now) ? Number(page.dataset.now) - Date.now() : 0;
  const clock = new Intl.DateTimeFormat([], { hour: "2-digit", minute: "2-digit", second: "2-digit", hourCycle: "h23" });
  const moment = new Intl.DateTimeFormat([], { dateStyle: "medium", timeStyle: "medium", hourCycle: "h23" });

  const span = (seconds) => {
    if (seconds < 60) return `${seconds} s`;
    if (seconds < 3600) return `${Math.floor(seconds / 60)} min ${seconds % 60} s`;
    if (seconds < 172800) return `${Math.floor(seconds / 3600)} h ${Math.floor((seconds % 3600) / 60)} min`;
    return `${Math.floor(seconds / 86400)} d`;
  };

  const forms = {
    clock: (at) => clock.format(at),
    moment: (at) => moment.format(at),
    since: (at) => span(Math.max(0, Math.floor((Date.now() + offset - at) / 1000))),
    ago: (at) => {
      const seconds = Math.floor((Date.now() + offset - at) / 1000);
      return seconds < 1 ? "now" : `${span(seconds)} ago`;
    },
  };

  const write = (element) => {
    const form = forms[element.dataset.form];
    const at = Date.parse(element.dateTime);
    if (!form || !at) return;
    const text = form(at);
    if (element.textContent !== text) element.textContent = text;
  };

  const writeTimes = () => document.querySelectorAll("time[data-form]").forEach(write);
  const writeAges = () => {
    if (!document.hidden) document.querySelectorAll('time[data-form="ago"], time[data-form="since"]').forEach(write);
  };
  writeTimes();
  setInterval(writeAges, 1000);

  // --- polling -------------------------------------------------------------------------------------------

  if (!window.htmx || !page.hasAttribute("hx-get")) return;

  let paused = pause.getAttribute("aria-pressed") === "true";
  let failures = 0;
  let notBefore = 0;
  let tag = "";
  let saidAt = 0;

  const refresh = () => window.htmx.trigger(page, "refresh");

  // The one line that screen readers hear: only what matters, and not all the time.
  const say = (text, now) => {
    if (!now && Date.now() - saidAt < NEWS_EVERY_MS) return;
    if (line.textContent !== text) {
      line.textContent = text;
      saidAt = Date.now();
    }
  };

  // A tick that is not wanted is called off before htmx queues it.
  page.addEventListener("htmx:config:request", (event) => {
    const ctx = event.detail.ctx;
    if (ctx.sourceElement !== page) return;
    const unwanted = document.hidden || paused || Date.now() < notBefore;
    if (ctx.sourceEvent && ctx.sourceEvent.type === "every" && unwanted) event.preventDefault();
    else if (tag) ctx.request.headers["Page-Tag"] = tag;
  });

  const answered = (ctx) => {
    failures = 0;
    notBefore = 0;
    if (!away.hidden) say("The server answers again.", true);
    away.hidden = true;
    page.classList.remove("old");
    const headers = ctx.response.headers;
    tag = headers.get("Page-Tag") || "";
    const now = Number(headers.get("Page-Time"));
    if (now) {
      offset = now - Date.now();
      if (asOf) {
        asOf.dateTime = asOf.title = new Date(now).toISOString();
        write(asOf);
      }
    }
  };

  const failed = () => {
    failures += 1;
    notBefore = Date.now() + Math.min(LONGEST_PAUSE_MS, 1000 * 2 ** failures);
    // One lost request is no news.
    if (failures > 1) {
      away.hidden = false;
      page.classList.add("old");
    }
  };

  page.addEventListener("htmx:error", failed);
  page.addEventListener("htmx:after:request", (event) => {
    const ctx = event.detail.ctx;
    if (ctx.sourceElement !== page) return;
    if (ctx.response.status === 401 || ctx.response.status === 404) window.location.reload();
    else if (ctx.response.status < 400) answered(ctx);
    else failed();
  });

  page.addEventListener("htmx:after:swap", () => {
    writeTimes();
    const news = page.querySelector("[data-news]");
    if (news) say(news.dataset.news, false);
  });

  document.addEventListener("visibilitychange", () => {
    if (!document.hidden && !paused) {
      notBefore = 0;
      refresh();
    }
  });

  const setPaused = (now) => {
    paused = now;
    pause.setAttribute("aria-pressed", String(paused));
    pause.textContent = paused ? "Paused" : "Pause";
    pause.value = paused ? "0" : "1";
    if (!paused) refresh();
  };

  // The form works without script too; with it the page stays where it is.
  pause.form.addEventListener("submit", (event) => {
    event.preventDefault();
    const body = new URLSearchParams({ paused: pause.value, back: "" });
    setPaused(!paused);
    fetch(pause.form.action, { method: "POST", body, redirect: "manual" }).catch(() => {});
  });

  // --- keyboard ------------------------------------------------------------------------------------------

  document.addEventListener("keydown", (event) => {
    const typing = event.target.closest("input, select, textarea, button, a, summary");
    if (typing || event.ctrlKey || event.metaKey || event.altKey) return;
    if (event.key === "p") pause.form.requestSubmit();
    else if (event.key === "r") refresh();
    else if (event.key === "/") {
      const find = document.querySelector("[data-find]");
      if (!find) return;
      event.preventDefault();
      find.focus();
    }
  });
})();
