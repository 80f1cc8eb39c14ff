// Drawing functions and number formats of the page's pictures, which ECharts calls by name: hushmote.NAME.
"use strict";

Object.assign(window.hushmote, (() => {
  const LABEL = 24; // characters of a name on an axis
  const FAINT = 0.35; // opacity
  const BLUE = "var(--accent)";

  // A percent sign as in the locale: after a space in German, without one in English.
  const percent = (locale) => {
    const parts = new Intl.NumberFormat(locale, { style: "percent" }).formatToParts(1);
    return parts.slice(parts.findLastIndex((part) => part.type === "integer") + 1).map((part) => part.value).join("");
  };
  const after = (locale, behind) => (behind === "%" ? percent(locale) : behind);

  const written = (locale, shape, behind = "") => {
    const end = after(locale, behind);
    return (v) => (+v).toLocaleString(locale, shape) + end;
  };

  // An axis's labels, and a tooltip's values, as numbers of a locale, such as de-CH.
  const digits = (locale, behind) => written(locale, { maximumSignificantDigits: 6 }, behind);

  function numbers(locale, behind) {
    const shape = (v) => ({ maximumSignificantDigits: 3, notation: Math.abs(v) >= 1e6 ? "compact" : "standard" });
    const end = after(locale, behind);
    return (v) => new Intl.NumberFormat(locale, shape(v)).format(v) + end;
  }

  function day(locale) {
    const format = new Intl.DateTimeFormat(locale, { month: "short", day: "numeric", timeZone: "UTC" });
    return (v) => format.format(v);
  }

  // A window, 2026-11-21 or 2026-11-21T05, on an axis: its day, and its hour where it has one.
  function time(locale) {
    const day = { month: "short", day: "numeric", timeZone: "UTC" };
    const hour = { ...day, hour: "2-digit", minute: "2-digit", hourCycle: "h23" };
    return (v) => {
      const at = new Date(v.length > 10 ? `${v}:00Z` : v);
      return isNaN(at) ? v : at.toLocaleString(locale, v.length > 10 ? hour : day);
    };
  }

  const name = (v) => (v.length > LABEL ? v.slice(0, LABEL - 1) + "…" : v);

  // The tooltip of a bar, a point or a window: text of vectors, never HTML.
  function told(locale, named) {
    const w = written(locale, { maximumSignificantDigits: 4 });
    const p100 = written(locale, { maximumSignificantDigits: 4 }, "%");
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

  // A bar from 0, and its interval: whiskers if there is room for them, otherwise a band.
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

  // An interval beside a name; the third and fourth values are its ends. across: names run along x.
  function whisker(across, colour) {
    const draw = line(colour);
    return (params, api) => {
      const [at, low, high] = [api.value(0), api.value(2), api.value(3)];
      const ends = [low, high].map((end) => api.coord(across ? [at, end] : [end, at]));
      const cap = across ? Math.min(5, api.size([1, 0])[0] / 4) : 5; // smaller when many are close together
      const mark = ([x, y]) => draw(across ? [[x - cap, y], [x + cap, y]] : [[x, y - cap], [x, y + cap]]);
      return { type: "group", children: [draw(ends), ...ends.map(mark)] };
    };
  }

  return { digits, numbers, day, time, name, told, bar, whisker };
})());
