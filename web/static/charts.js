// Drawing functions and number formats for the page's charts, which ECharts calls by name as hushmote.NAME.
"use strict";

Object.assign(window.hushmote, (() => {
  const LABEL = 24; // maximum characters in a name on an axis
  const FAINT = 0.35; // opacity
  const BLUE = "var(--accent)";

  // The locale's percent sign, which follows a space in German but not in English.
  const percent = (locale) => {
    const parts = new Intl.NumberFormat(locale, { style: "percent" }).formatToParts(1);
    return parts.slice(parts.findLastIndex((part) => part.type === "integer") + 1).map((part) => part.value).join("");
  };
  const localized = (locale, suffix) => (suffix === "%" ? percent(locale) : suffix);

  const formatter = (locale, options, suffix = "") => {
    const end = localized(locale, suffix);
    return (v) => (+v).toLocaleString(locale, options) + end;
  };

  // Formats an axis's labels and a tooltip's values as numbers in a locale, such as de-CH.
  const digits = (locale, suffix) => formatter(locale, { maximumSignificantDigits: 6 }, suffix);

  function numbers(locale, suffix) {
    const options = (v) => ({ maximumSignificantDigits: 3, notation: Math.abs(v) >= 1e6 ? "compact" : "standard" });
    const end = localized(locale, suffix);
    return (v) => new Intl.NumberFormat(locale, options(v)).format(v) + end;
  }

  // Formats a day as Nov 21 or, if ticks are months apart, as Nov 2026.
  function day(locale, asMonth) {
    const detail = asMonth ? { year: "numeric" } : { day: "numeric" };
    const format = new Intl.DateTimeFormat(locale, { month: "short", ...detail, timeZone: "UTC" });
    return (v) => format.format(v);
  }

  // Formats a window on an axis, such as 2026-11-21 or 2026-11-21T05, as its day and, if it has one, its hour.
  function time(locale) {
    const day = { month: "short", day: "numeric", timeZone: "UTC" };
    const hour = { ...day, hour: "2-digit", minute: "2-digit", hourCycle: "h23" };
    return (v) => {
      const at = new Date(v.length > 10 ? `${v}:00Z` : v);
      return isNaN(at) ? v : at.toLocaleString(locale, v.length > 10 ? hour : day);
    };
  }

  const name = (v) => (v.length > LABEL ? v.slice(0, LABEL - 1) + "…" : v);

  // The tooltip for a bar, a point or a window, as vector text, never as HTML.
  function tooltip(locale, named) {
    const w = formatter(locale, { maximumSignificantDigits: 4 });
    const p100 = formatter(locale, { maximumSignificantDigits: 4 }, "%");
    return (p) => {
      const v = Array.isArray(p.value) ? p.value : [p.value];
      if (v.length > 4) return `${w(v[0])} to ${w(v[1])}: ${p100(v[2])}, between ${w(v[3])} and ${p100(v[4])}`;
      return named ? `${p.name}: ${w(v[0])}` : `${w(v[0])}: ${p100(v[1])}`;
    };
  }

  const line = (stroke) => (points) => ({
    type: "polyline",
    shape: { points },
    style: { stroke, lineWidth: 2, fill: "none" },
  });

  // Draws a bar from 0 and its interval, as whiskers if the bar is wide enough, otherwise as a band.
  function bar(params, api) {
    const [from, to, value, low, high] = [0, 1, 2, 3, 4].map((i) => api.value(i));
    const [x0, y0] = api.coord([from, Math.max(0, Math.min(value, 0))]);
    const [x1, y] = api.coord([to, value]);
    const top = api.coord([from, high])[1];
    const bottom = api.coord([from, low])[1];
    const width = Math.max(1, x1 - x0 - (x1 - x0 > 6 ? 2 : 0));
    const middle = x0 + width / 2;
    const draw = line(BLUE);
    const filled = (y, height) => ({
      type: "rect",
      shape: { x: x0, y, width, height },
      style: { fill: BLUE, opacity: FAINT },
    });
    const at = draw([[x0, y], [x0 + width, y]]);
    if (width <= 9) return { type: "group", children: [filled(top, bottom - top), at] };
    const cap = Math.min(6, width / 4);
    const ends = [top, bottom].map((y) => draw([[middle - cap, y], [middle + cap, y]]));
    const whisker = draw([[middle, top], [middle, bottom]]);
    return { type: "group", children: [filled(Math.min(y0, y), Math.abs(y - y0)), at, whisker, ...ends] };
  }

  // Draws an interval next to a name; its ends are the third and fourth values. With `across`, names are on the x axis.
  function whisker(across, colour) {
    const draw = line(colour);
    return (params, api) => {
      const [at, low, high] = [api.value(0), api.value(2), api.value(3)];
      const ends = [low, high].map((end) => api.coord(across ? [at, end] : [end, at]));
      const cap = across ? Math.min(5, api.size([1, 0])[0] / 4) : 5; // smaller if many intervals are close together
      const mark = ([x, y]) => draw(across ? [[x - cap, y], [x + cap, y]] : [[x, y - cap], [x, y + cap]]);
      return { type: "group", children: [draw(ends), ...ends.map(mark)] };
    };
  }

  // Resizes a chart that ECharts started before the page had its final width.
  function fit(chart) {
    const width = chart?.getDom().clientWidth; // 0 while the chart is hidden
    if (width && Math.abs(chart.getWidth() - width) > 1) chart.resize();
  }

  return { fit, digits, numbers, day, time, name, tooltip, bar, whisker };
})());
