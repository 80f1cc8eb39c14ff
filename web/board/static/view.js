// The results, from the server if it publishes any, otherwise estimated from this page's reports.
import { comparison, drawHistogram, fillTable, isInformative } from './chart.js';
import { canEstimate, estimator } from './estimate.js';
import { NotSent } from './door.js';
import { belief, codeOf, edgeOf, groupName, groupsOf, nats, needed, number, reports } from './words.js';

const MIN_USEFUL = 50; // reports; shares from fewer are too noisy to be useful
const $ = (id) => document.getElementById(id);

/** Return the view of one experiment; to is the result of door() or examples(). */
export function makeView(exp, to) {
  const groups = groupsOf(exp);
  const estimated = canEstimate(exp) ? estimator(exp) : null;
  const counts = new Float64Array(estimated ? exp.code_count : 0);
  const truth = new Float64Array(exp.domain);
  let [counted, known] = [0, 0]; // reports from this page, and how many of them have a known reading
  let refreshing = null;
  let last = null; // the newest published result
  let answeredAt = null; // time of the server's last answer
  let silent = false; // whether the last request failed
  let hadReports = null; // whether the server had counted reports before this page sent any

  function localRows() {
    const rows = counted > 1 && estimated ? estimated(counts, groups) : [];
    return rows.map((row, i) => ({ ...row, name: groupName(exp, groups[i]), truth: truthOf(groups[i]) }));
  }

  /** Return whether the true shares are known, because all counted reports are from this page with known readings. */
  const knowsTruth = () => known > 0 && known === counted && (!last || (!hadReports && last.reports === counted));
  const truthOf = (values) => (knowsTruth() ? values.reduce((sum, v) => sum + truth[v], 0) / known : null);

  function rowName({ from, to }) {
    if (from <= exp.low / 1000 && to < exp.high / 1000) return `below ${number(to)}`;
    if (from > exp.low / 1000 && to >= exp.high / 1000) return `${number(from)} or more`;
    return `${number(from)} to ${number(to)}`;
  }

  function serverRows(result) {
    const middle = (v) => (edgeOf(exp, v) + edgeOf(exp, v + 1)) / 2;
    const all = Array.from({ length: exp.domain }, (_, v) => v);
    return result.histogram.map((row, i) => ({
      ...row,
      name: row.from === null ? row.name : rowName(row),
      truth: truthOf(row.from === null ? [i] : all.filter((v) => row.from <= middle(v) && middle(v) < row.to)),
    }));
  }

  /** Describe a result without a histogram, such as a mean. */
  function statistics(result) {
    if (result.histogram.length) return '';
    const value = (x) => `${number(x)} ${result.unit ?? ''}`.trim();
    return result.statistics
      .filter(({ low, high }) => high - low <= (0.6 * (exp.high - exp.low)) / 1000)
      .map((row) => ` The ${row.name} over all devices is ${value(row.value)}, between ${value(row.low)} and ${value(row.high)}.`)
      .join('');
  }

  function source() {
    const sent = reports(counted);
    if (silent) {
      const since = answeredAt ? `No answer since ${answeredAt.toLocaleTimeString()}` : 'No answer yet from the server';
      const count = last ? `; the last count was ${number(last.reports)}` : '';
      return `${since}${count}. This page has sent ${sent}.`;
    }
    if (last) {
      const isBehind = known === counted && !hadReports && last.reports < counted; // the server has yet to count some reports
      const other = counted && !knowsTruth() && !isBehind ? ' Other pages or devices sent some of the counted reports, so this page does not know the true shares.' : '';
      return `The aggregator has counted ${reports(last.reports)}; this page has sent ${sent}.${other}${statistics(last)}`;
    }
    const where = to.broker
      ? `This server publishes no results, so this page counts only its own reports: ${sent}.`
      : `This page counts reports in this browser, until it is reloaded: ${sent}. Nothing leaves this browser.`;
    if (!estimated) return `${where} It cannot estimate shares with ${exp.mechanism} and ${number(exp.domain)} values; an aggregator can.`;
    return where;
  }

  /** Return the finding, or the number of reports that a finding needs. */
  function findingText(rows, n) {
    if (n === 1) return 'One report tells nothing yet: an estimate needs 2.';
    return last?.finding || (rows.length && !rows.some(isInformative) ? needed(rows, n) : '');
  }

  /** Return the note on estimates from too few reports. */
  function fewReportsNote(rows, n) {
    const scatter = rows.length && n < MIN_USEFUL ? `${reports(n)} are too few to say much. Estimates are right on average, but estimates from few reports scatter widely, even below 0% and above 100%.` : '';
    return `${scatter} ${rows.every(isInformative) ? '' : 'Shares with too wide an interval are not shown.'}`.trim();
  }

  async function ask() {
    try {
      last = await to.result(exp.name);
      answeredAt = new Date();
      silent = false;
      hadReports ??= !counted && (last?.reports ?? 0) > 0;
    } catch (error) {
      if (!(error instanceof NotSent)) throw error;
      silent = true;
    }
  }

  return {
    exp,
    /** Add one acknowledged report; index is its reading's index, or null if the reading is unknown. */
    add(index, hex) {
      counted++;
      if (estimated) counts[codeOf(hex)]++;
      if (index !== null) {
        known++;
        truth[index]++;
      }
    },
    silent: () => silent,
    counted: () => counted,
    /** Show the current state, and return the newest published result or null; concurrent calls share one request. */
    refresh() {
      refreshing ??= this.draw().finally(() => (refreshing = null));
      return refreshing;
    },
    async draw() {
      await ask();
      const all = last?.histogram?.length ? serverRows(last) : localRows();
      const rows = all.some(isInformative) ? all : [];
      $('source').textContent = source();
      $('comparison').textContent = comparison(rows);
      const n = (last ?? { reports: counted }).reports;
      $('finding').textContent = findingText(all, n);
      $('few-note').textContent = fewReportsNote(rows, n);
      const hasTruth = rows.some((row) => row.truth !== null);
      for (const id of ['truth-key', 'truth-head']) $(id).hidden = !hasTruth;
      fillTable($('rows'), rows);
      $('beside').hidden = !rows.length;
      if (rows.length) drawHistogram($('chart'), rows, Math.max($('chart').clientWidth, 280));
      else $('chart').replaceChildren();
      $('live').textContent = `Anyone who watches this page change report by report learns as much as from the reports themselves, each with ε = ${nats(exp.epsilon)}. ${belief(exp.epsilon)}`;
      return last;
    },
  };
}
