// Numbers in the reader's locale, and sentences about an experiment; the page inserts them as text, never as HTML.

const format = (options) => {
  const formatter = new Intl.NumberFormat(undefined, options);
  return (x) => formatter.format(x);
};
export const number = format({ maximumFractionDigits: 3 });
const tenths = format({ minimumFractionDigits: 1, maximumFractionDigits: 1 });
export const percent = (share) => `${tenths(100 * share)}%`;
export const roughly = (share) => `${points(100 * share)}%`;
export const points = format({ maximumFractionDigits: 1 });
export const nats = (micro) => format({ maximumFractionDigits: 6 })(micro / 1e6);

/** Return a number of reports in words. */
export const reports = (n) => `${number(n)} ${n === 1 ? 'report' : 'reports'}`;

/** Describe how many reports an error of 10 points needs for the largest share, like server/words/findings.py::too_few. */
export function needed(rows, n) {
  const largest = rows.reduce((a, b) => (b.share > a.share ? b : a));
  const all = n * (5 * (largest.high - largest.low)) ** 2;
  const unit = 10 ** Math.max(0, Math.floor(Math.log10(all)) - 1);
  return `${reports(n)} so far. ±10 points needs about ${number(Math.ceil(all / unit) * unit)}.`;
}

/** Return an element with attributes and children, which are elements or text. */
export function element(tag, attributes = {}, ...children) {
  const node = tag.startsWith('svg:')
    ? document.createElementNS('http://www.w3.org/2000/svg', tag.slice(4))
    : document.createElement(tag);
  for (const [name, value] of Object.entries(attributes)) node.setAttribute(name, value);
  node.append(...children);
  return node;
}

/** Describe the maximum that reports reveal, rounded up, like server/words/epsilon.py::belief. */
export function belief(micro, seen = 'One report') {
  const odds = Math.exp(Math.min(micro / 1e6, 700)) / 9;
  const sure = Math.ceil((100 * odds) / (1 + odds));
  const after = sure < 100 ? `at most ${sure}%` : 'near certainty';
  return `${seen} can raise someone's confidence in a guess about the reading from 10% to ${after}.`;
}

/** Return the parts of a report without a tag as [hex, description]; codeBytes is the size of the experiment's codes. */
export const reportParts = (hex, codeBytes) => [
  [hex.slice(0, 2), 'format 1, open fleet'],
  [hex.slice(2, 10), 'experiment'],
  [hex.slice(10, 18), `report number ${number(parseInt(hex.slice(10, 18), 16))}`],
  [hex.slice(18, 18 + 2 * codeBytes), `code ${number(parseInt(hex.slice(18), 16))}`],
];

export const codeOf = (hex) => parseInt(hex.slice(18), 16);

/** Return the name of an index: a label, yes or no, or the ends of its bin. */
export function indexName(exp, index) {
  if (index === null) return 'no reading';
  if (exp.type === 'bool') return index ? 'yes' : 'no';
  if (exp.type === 'choice') return exp.labels[index] ?? 'other';
  return binName(exp, index, index + 1);
}

/** Return the lower edge of a number's bin, or the upper one of the bin before it, in the unit. */
export function edgeOf(exp, i) {
  const milli = exp.edges?.length ? exp.edges[i] : exp.low + ((exp.high - exp.low) * i) / exp.domain;
  return milli / 1000;
}

/** Return the name of the bins from `from` up to but excluding `to`; the end bins include values outside the bounds. */
function binName(exp, from, to) {
  const edge = (i) => number(edgeOf(exp, i));
  if (from === 0 && to < exp.domain) return `below ${edge(to)}`;
  return from > 0 && to === exp.domain ? `${edge(from)} or more` : `${edge(from)} to ${edge(to)}`;
}

/** Describe the meaning of a code under rr, grr or olh. */
export function codeMeaning(exp, code) {
  if (exp.levels.length > 1) return 'The code names one level of a tree, a random seed, and one of that level’s cells.';
  const level = exp.levels[0];
  const chance = roughly(level.threshold / 2 ** 30);
  if (!level.t) {
    return `With probability ${chance}, the code is the reading’s index; otherwise it is one of the other indices at random. This code means “${indexName(exp, code)}”.`;
  }
  const [seed, cell] = [Math.floor(code / level.g) + 1, code % level.g];
  return `Random seed ${number(seed)} sorts all values into ${level.g} cells. With probability ${chance}, the code names the reading’s cell; otherwise it names another cell. This code names cell ${cell}, which holds about 1 in ${level.g} of all values.`;
}

/** Return at most `max` groups of adjacent indices, for a chart. */
export function groupsOf(exp, max = 16) {
  const size = exp.type === 'number' ? Math.ceil(exp.domain / max) : 1;
  const groups = [];
  for (let at = 0; at < exp.domain; at += size) {
    groups.push(Array.from({ length: Math.min(size, exp.domain - at) }, (_, i) => at + i));
  }
  return groups;
}

export function groupName(exp, values) {
  if (exp.type !== 'number') return indexName(exp, values[0]);
  return binName(exp, values[0], values.at(-1) + 1);
}

/** Describe the experiment's readings, the cost of a report and the budget. */
export function facts(exp, unit = '') {
  const kind = {
    number: `Readings from ${number(exp.low / 1000)} to ${number(exp.high / 1000)}${unit && ` ${unit}`} are sorted into ${number(exp.domain)} bins${exp.edges?.length ? ' on a logarithmic scale' : ''}.`,
    choice: exp.labels.length === 1 ? 'A reading is the only label, or “other”.' : `A reading is one of ${number(exp.labels.length)} labels, or “other”.`,
    bool: 'A reading is yes or no.',
  }[exp.type];
  const cap = { sum: `ε ${nats(exp.cap)}`, squares: `a sum of ε² of ${number(exp.cap / 1e12)}`, count: reports(exp.cap), unlimited: 'no limit' }[exp.rule];
  const every = exp.every > 1 ? ` It reports 1 reading in ${number(exp.every)}, drawn at random.` : '';
  return `${kind} A report costs ε ${nats(exp.epsilon)}. The board’s budget for this experiment is ${cap}.${every}`;
}
