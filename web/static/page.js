// The page's frame in the browser, with colours, the menu, the last change's time, and lost connections.
"use strict";

window.hushmote = (() => {
  const COLOURS = "hushmote-colours";
  const QUIET_MS = 30_000; // minimum time between a screen reader's announcements of updates
  const TICK_MS = 10_000; // between updates of ages
  const DAY_S = 86_400;
  const NOT_CONNECTED =
    "This view needs a WebSocket, which the page's process or a proxy refuses. A proxy must pass on the headers Upgrade and Host.";
  // Units of ages, each with the least age that it describes, and its size, in seconds; see time_since() in
  // server/words/numbers.py.
  const AGES = [
    [730 * DAY_S, 365 * DAY_S, "years"],
    [60 * DAY_S, 30 * DAY_S, "months"],
    [2 * DAY_S, DAY_S, "days"],
    [3600, 3600, "h"],
    [60, 60, "min"],
    [10, 1, "s"],
  ];
  let at = null; // time of the last change
  let aheadMs = 0; // by how much the server's clock is ahead of this machine's
  let announcedAt = 0;

  function storedColours() {
    try {
      return localStorage.getItem(COLOURS) || "auto";
    } catch {
      return "auto"; // the browser denies access to storage
    }
  }

  function paint(colours) {
    window.Quasar?.Dark.set(colours === "auto" ? "auto" : colours === "dark");
    paintDocument(colours);
  }

  function paintDocument(colours) {
    const scheme = colours === "auto" ? "light dark" : colours;
    document.getElementById("nicegui-color-scheme")?.setAttribute("content", scheme);
    document.documentElement.style.colorScheme = scheme;
    if (colours === "auto") delete document.documentElement.dataset.theme;
    else document.documentElement.dataset.theme = colours;
  }

  function time(date) {
    return date.toLocaleTimeString(navigator.languages, { hour: "2-digit", minute: "2-digit", second: "2-digit" });
  }

  /** Say how long ago something happened; both times are unix seconds. */
  function timeSince(then, now) {
    const seconds = Math.trunc(now - then);
    const age = Math.abs(seconds);
    const unit = AGES.find(([least]) => age >= least);
    if (!unit) return "just now";
    return `${Math.floor(age / unit[1])} ${unit[2]} ${seconds >= 0 ? "ago" : "ahead of this clock"}`;
  }

  function showAges() {
    for (const label of document.querySelectorAll("[data-age-of]")) {
      const age = timeSince(new Date(label.dataset.ageOf) / 1000, (Date.now() + aheadMs) / 1000);
      const words = label.dataset.words.replace("{}", age);
      if (label.textContent !== words) label.textContent = words;
    }
  }

  function updated(iso, serverTime) {
    at = new Date(iso);
    aheadMs = new Date(serverTime) - Date.now();
    const words = `updated ${time(at)}`;
    const label = document.getElementById("frame-updated");
    if (label) {
      Object.assign(label.dataset, { ageOf: iso, words: "updated {}" });
      label.title = at.toLocaleString(navigator.languages);
      showAges();
    }
    const status = document.getElementById("frame-status");
    if (status && Date.now() - announcedAt > QUIET_MS) {
      announcedAt = Date.now();
      status.textContent = words;
    }
  }

  function watchConnection() {
    const popup = document.getElementById("popup");
    if (!popup) return;
    popup.setAttribute("role", "alert");
    let isRefused = false;
    const refuse = () => (isRefused = true, popup.ariaHidden = false); // NiceGUI shows only lost connections
    window.socket?.on("connect_error", refuse);
    window.socket?.on("connect", () => (isRefused = false, window.socket.off("connect_error", refuse)));
    const say = () => {
      const since = at ? ` The page shows the state at ${time(at)}.` : "";
      const isLost = popup.getAttribute("aria-hidden") === "false";
      const why = isRefused ? NOT_CONNECTED : `The page's process does not answer.${since}`;
      const words = isLost ? [why, "The browser keeps trying to reconnect."] : ["", ""];
      popup.querySelectorAll("span").forEach((span, i) => {
        if (span.textContent !== words[i]) span.textContent = words[i];
      });
    };
    say();
    new MutationObserver(say).observe(popup, { attributes: true, attributeFilter: ["aria-hidden"] });
  }

  function menu(button, open) {
    button.setAttribute("aria-expanded", String(open));
    document.getElementById("frame-views").classList.toggle("open", open);
  }

  // The CSV dialect is stored in a cookie for the page's path, so that the server knows it when it writes a file.
  function rememberDialect() {
    document.addEventListener("change", ({ target }) => {
      if (target.id !== "csv-dialect") return;
      const path = new URL(`${root}/`, document.baseURI).pathname;
      // In a frame on another site, browsers send only such cookies, and only over HTTPS.
      const sites = isSecureContext && window !== top ? "none; secure; partitioned" : "lax";
      document.cookie = `csv-dialect=${target.value}; path=${path}; max-age=31536000; samesite=${sites}`;
    });
  }

  function start() {
    paint(storedColours());
    watchConnection();
    rememberDialect();
    const form = document.querySelector(".frame-form"); // for the token
    if (form) form.action += location.hash; // browsers keep the fragment when the answer redirects them
    const select = document.getElementById("frame-colours");
    if (select) {
      select.value = storedColours();
      select.addEventListener("change", () => {
        try {
          localStorage.setItem(COLOURS, select.value);
        } catch {
          // the choice lasts until the next page load
        }
        paint(select.value);
      });
    }
    const button = document.getElementById("frame-menu");
    if (button) {
      button.addEventListener("click", () => menu(button, button.getAttribute("aria-expanded") !== "true"));
      document.addEventListener("keydown", (event) => {
        if (event.key === "Escape" && button.getAttribute("aria-expanded") === "true") {
          menu(button, false);
          button.focus();
        }
      });
    }
    document.querySelector(".frame-skip")?.addEventListener("click", (event) => {
      event.preventDefault();
      document.getElementById("main").focus();
    });
    document.addEventListener("click", (event) => {
      const link = event.target.closest?.('a[href^="#"]');
      const target = link && document.getElementById(link.hash.slice(1));
      const closed = target?.closest("details:not([open])");
      if (closed) closed.open = true; // before the browser scrolls to the target
    });
    const first = document.getElementById("frame-updated")?.dataset;
    if (first?.at && !at) updated(first.at, first.now);
    setInterval(showAges, TICK_MS);
  }

  // Scroll to the URL fragment's target, which exists only after the view has been built.
  function scrollToFragment() {
    const target = location.hash.length > 1 && document.getElementById(location.hash.slice(1));
    if (target) target.scrollIntoView();
  }

  // The document's addresses are relative, but NiceGUI's connection and later modules need the path that a reverse
  // proxy serves the page under, such as /telemetry.
  let root = ""; // relative, such as ../..
  const createRelative = window.createApp;
  window.createApp = (elements, options) => {
    root = options.prefix;
    const path = new URL(`${root}/`, document.baseURI).pathname;
    return createRelative(elements, { ...options, prefix: path.replace(/\/$/, "") });
  };

  paintDocument(storedColours());
  // NiceGUI has drawn the page after all of the document's scripts have run.
  document.addEventListener("DOMContentLoaded", start);
  return { updated, scrollToFragment, timeSince };
})();
