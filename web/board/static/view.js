// The results: the server's numbers if there are any, otherwise those of the reports from this page.
import { comparison, drawHistogram, fillTable, tells } from './chart.js';
import { canEstimate, estimator } from './estimate.js';
import { NotSent } from './door.js';
import { belief, codeOf, groupName, groupsOf, nats, needed, number, reports } from './words.js';

const FEW = 50; // reports, too few for useful shares
const $ = (id) => document.getElementById(id);

/** Return the view of one experiment; to is the result of door() or examples(). */
export function makeView(exp, to) {
  const groups = groupsOf(exp);
  const estimated = canEstimate(exp) ? estimator(exp) : null;
  const counts = new Float64Array(estimated ? exp.code_count : 0);
  const truth = new Float64Array(exp.domain);
  let [counted, known] = [0, 0];
  let underWay = null;
  let last = null; // the newest published result
  let answeredAt = null; // time of the server's last answer
  let silent = false; // whether the last request had no answer
  let hadReports = null; // whether reports had been counted before this page sent any

  function ours() {
    const rows = counted > 1 && estimated ? estimated(counts, groups) : [];
    return rows.map((row, i) => ({ ...row, name: groupName(exp, groups[i]), truth: truthOf(groups[i]) }));
  }

  /** Return whether all counted reports are from this page with known readings, so that there is a truth of all. */
  const isAll = () => known > 0 && known === counted && (!last || (!hadReports && last.reports === counted));
  const truthOf = (values) => (isAll() ? values.reduce((sum, v) => sum + truth[v], 0) / known : null);

  function between({ from, to }) {
    if (from <= exp.low / 1000 && to < exp.high / 1000) return `below ${number(to)}`;
    if (from > exp.low / 1000 && to >= exp.high / 1000) return `${number(from)} or more`;
    return `${number(from)} to ${number(to)}`;
  }

  function theirs(result) {
    const middle = (v) => (exp.low + ((exp.high - exp.low) * (v + 0.5)) / exp.domain) / 1000;
    const all = Array.from({ length: exp.domain }, (_, v) => v);
    return result.histogram.map((row, i) => ({
      ...row,
      name: row.from === null ? row.name : between(row),
      truth: truthOf(row.from === null ? [i] : all.filter((v) => row.from <= middle(v) && middle(v) < row.to)),
    }));
  }

  /** Return the result without a histogram, such as a mean alone. */
  function alone(result) {
    if (result.histogram.length) return '';
    const value = (x) => `${number(x)} ${result.unit ?? ''}`.trim();
    return result.statistics
      .filter((one) => one.high - one.low <= (0.6 * (exp.high - exp.low)) / 1000)
      .map((one) => ` The ${one.name} of all is ${value(one.value)}, between ${value(one.low)} and ${value(one.high)}.`)
      .join('');
  }

  function source() {
    const sent = reports(counted);
    if (silent) {
      const since = answeredAt ? `No answer since ${answeredAt.toLocaleTimeString()}` : 'No answer yet from the server';
      const count = last ? `; the last count was ${number(last.reports)}` : '';
      return `${since}${count}. ${sent} went out from here.`;
    }
    if (last) {
      const late = known === counted && !hadReports && last.reports < counted; // some reports are still on their way
      const other = counted && !isAll() && !late ? ' Not all that is counted was sent from here, so nobody here knows the truth of it.' : '';
      return `The aggregator has counted ${reports(last.reports)}; ${sent} went out from here.${other}${alone(last)}`;
    }
    const where = to.broker
      ? `This server publishes no results. So this page counts what it sent itself: ${sent}.`
      : `This page counts in this browser, and forgets when it is reloaded: ${sent}. Nothing leaves this browser.`;
    if (!estimated) return `${where} It only counts: estimates of this kind (${exp.mechanism}, ${number(exp.domain)} values) are an aggregator’s work.`;
    return where;
  }

  /** Return the finding, or how many reports it needs. */
  function findingText(rows, n) {
    if (n === 1) return 'One report tells nothing yet: an estimate needs 2.';
    return last?.finding || (rows.length && !rows.some(tells) ? needed(rows, n) : '');
  }

  /** Return the note on rows of which some have too few reports. */
  function few(rows, n) {
    const scatter = rows.length && n < FEW ? `${reports(n)} are too few to say much. Estimates are right on average; those of few reports scatter widely, also below 0% and above 100%.` : '';
    return `${scatter} ${rows.every(tells) ? '' : 'Shares that these reports tell too little about are not shown.'}`.trim();
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
    /** Add one acknowledged report; index is that of its reading, or null if it is unknown. */
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
    /** Show the present state, and return the newest published result or null; concurrent calls share one request. */
    refresh() {
      underWay ??= this.draw().finally(() => (underWay = null));
      return underWay;
    },
    async draw() {
      await ask();
      const all = last?.histogram?.length ? theirs(last) : ours();
      const rows = all.some(tells) ? all : [];
      $('source').textContent = source();
      $('compared').textContent = comparison(rows);
      const n = (last ?? { reports: counted }).reports;
      $('found').textContent = findingText(all, n);
      $('few').textContent = few(rows, n);
      const truths = rows.some((row) => row.truth !== null);
      for (const id of ['truth-key', 'truth-head']) $(id).hidden = !truths;
      fillTable($('rows'), rows);
      $('beside').hidden = !rows.length;
      if (rows.length) drawHistogram($('chart'), rows, Math.max($('chart').clientWidth, 280));
      else $('chart').replaceChildren();
      $('live').textContent = `Anyone watching this change report by report learns as much as from the reports themselves, each of ε ${nats(exp.epsilon)}. ${belief(exp.epsilon)}`;
      return last;
    },
  };
}
