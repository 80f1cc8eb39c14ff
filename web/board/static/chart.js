// A histogram with intervals as SVG, and its numbers as a table, without a library.
import { element, number, percent, points, roughly } from './words.js';

const [HEIGHT, LEFT, RIGHT, TOP, BOTTOM] = [260, 46, 8, 10, 44];

/** Return whether an interval is narrow enough to show, like server/words/numbers.py::is_too_wide. */
export const isInformative = (row) => row.high - row.low <= 0.6;

/** Draw rows {name, share, low, high, truth}; truth is the true share, or null if it is unknown. */
export function drawHistogram(box, rows, width) {
  const visible = rows.filter(isInformative);
  const top = Math.max(0.05, ...visible.map((r) => r.high), ...rows.map((r) => r.truth ?? 0)) * 1.05;
  const bottom = Math.min(0, ...visible.map((r) => r.low)) * 1.05;
  const y = (share) => TOP + ((top - Math.min(Math.max(share, bottom), top)) / (top - bottom)) * (HEIGHT - TOP - BOTTOM);
  const step = (width - LEFT - RIGHT) / rows.length;
  const svg = element('svg:svg', { viewBox: `0 0 ${width} ${HEIGHT}`, role: 'img', 'aria-label': 'Histogram with intervals; the table contains the same numbers.' });
  const tick = niceStep(top - bottom);
  for (let k = Math.ceil(bottom / tick); k * tick <= top; k++) {
    const share = k * tick || 0; // avoids -0%
    svg.append(
      element('svg:line', { x1: LEFT, x2: width - RIGHT, y1: y(share), y2: y(share), class: k ? 'grid' : 'axis' }),
      element('svg:text', { x: LEFT - 6, y: y(share) + 4, 'text-anchor': 'end' }, roughly(share)),
    );
  }
  const every = Math.ceil((Math.max(...rows.map((r) => r.name.length)) * 6.5 + 8) / step);
  rows.forEach((row, i) => {
    const [x, middle] = [LEFT + i * step, LEFT + (i + 0.5) * step];
    if (isInformative(row)) {
      const bar = [y(Math.max(row.share, 0)), y(Math.min(row.share, 0))];
      svg.append(element('svg:rect', { x: x + step * 0.12, width: step * 0.76, y: bar[0], height: bar[1] - bar[0], class: 'bar' }));
    }
    if (row.truth !== null) {
      svg.append(element('svg:line', { x1: x + step * 0.04, x2: x + step * 0.96, y1: y(row.truth), y2: y(row.truth), class: 'truth' }));
    }
    if (isInformative(row)) svg.append(element('svg:line', { x1: middle, x2: middle, y1: y(row.low), y2: y(row.high), class: 'interval' }));
    if (i % every === 0) {
      svg.append(element('svg:text', { x: middle, y: HEIGHT - BOTTOM + 18, 'text-anchor': 'middle' }, row.name));
    }
  });
  box.replaceChildren(svg);
}

function niceStep(span) {
  const power = 10 ** Math.floor(Math.log10(span / 4));
  return [1, 2, 5, 10].map((m) => m * power).find((s) => span / s <= 5);
}

export function fillTable(body, rows) {
  body.replaceChildren(
    ...rows.map((row) =>
      element(
        'tr',
        {},
        element('th', { scope: 'row' }, row.name),
        element('td', {}, isInformative(row) ? percent(row.share) : '–'),
        element('td', {}, isInformative(row) ? `${percent(row.low)} to ${percent(row.high)}` : 'too few reports'),
        ...(row.truth === null ? [] : [element('td', {}, percent(row.truth))]),
      ),
    ),
  );
}

/** Describe how close the estimates are to the true shares. */
export function comparison(rows) {
  const comparable = rows.filter((r) => r.truth !== null && isInformative(r));
  if (!comparable.length) return '';
  const correct = comparable.filter((r) => r.low <= r.truth && r.truth <= r.high).length;
  const gap = Math.max(...comparable.map((r) => Math.abs(r.share - r.truth)));
  return `${number(correct)} of ${number(comparable.length)} intervals contain the truth; in the long run, at least 95 in 100 do. The largest difference is ${points(gap * 100)} points.`;
}
