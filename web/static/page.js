// The page's frame in the browser: colours, menu, the time of the last change, a lost connection.
"use strict";

window.hushmote = (() => {
  const COLOURS = "hushmote-colours";
  const QUIET_MS = 30_000; // between two announcements of updates by a screen reader
  let at = null;
  let told = 0;

  function kept() {
    try {
      return localStorage.getItem(COLOURS) || "auto";
    } catch {
      return "auto"; // a browser that stores nothing
    }
  }

  function paint(colours) {
    window.Quasar?.Dark.set(colours === "auto" ? "auto" : colours === "dark");
    const scheme = colours === "auto" ? "light dark" : colours;
    document.getElementById("nicegui-color-scheme")?.setAttribute("content", scheme);
    document.documentElement.style.colorScheme = scheme;
  }

  function time(date) {
    return date.toLocaleTimeString(navigator.languages, { hour: "2-digit", minute: "2-digit", second: "2-digit" });
  }

  function updated(iso) {
    at = new Date(iso);
    const words = `updated ${time(at)}`;
    const shown = document.getElementById("frame-updated");
    if (shown) shown.textContent = words;
    const status = document.getElementById("frame-status");
    if (status && Date.now() - told > QUIET_MS) {
      told = Date.now();
      status.textContent = words;
    }
  }

  function lost() {
    const popup = document.getElementById("popup");
    if (!popup) return;
    popup.setAttribute("role", "alert");
    const say = () => {
      const since = at ? ` What you see is of ${time(at)}.` : "";
      const gone = popup.getAttribute("aria-hidden") === "false";
      const words = gone ? [`The page's process does not answer.${since}`, "It is asked again until it does."] : ["", ""];
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

  function start() {
    paint(kept());
    lost();
    const select = document.getElementById("frame-colours");
    if (select) {
      select.value = kept();
      select.addEventListener("change", () => {
        try {
          localStorage.setItem(COLOURS, select.value);
        } catch {
          // it is valid until the next page
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
    const first = document.getElementById("frame-updated")?.dataset.at;
    if (first && !at) updated(first);
  }

  // The target of an address's fragment exists only once the view is filled.
  function arrive() {
    const part = location.hash.length > 1 && document.getElementById(location.hash.slice(1));
    if (part) part.scrollIntoView();
  }

  if (kept() !== "auto") document.documentElement.style.colorScheme = kept();
  // After all scripts of the document have run: NiceGUI has drawn the page.
  document.addEventListener("DOMContentLoaded", start);
  return { updated, arrive };
})();
