// What is learned: the server's numbers where there are some, else those of the reports that this page sent.
import { compared, drawHistogram, fillTable, tells } from './chart.js';
import { canEstimate, estimator } from './estimate.js';
import { NotSent } from './door.js';
import { belief, codeOf, groupName, groupsOf, nats, needed, number, reports } from './words.js';

const FEW = 50; // reports, of which little can be said
const $ = (id) => document.getElementById(id);

/** The view of one experiment; to: what door() or examples() gives. */
export function makeView(exp, to) {
  const groups = groupsOf(exp);
  const estimated = canEstimate(exp) ? estimator(exp) : null;
  const counts = new Float64Array(estimated ? exp.code_count : 0);
  const truth = new Float64Array(exp.domain);
  let [counted, known] = [0, 0];
  let underWay = null;
  let last = null; // the newest result that was published
  let answered = null; // when the server answered last
  let silent = false; // whether it did not answer the last time
  let others = null; // whether reports had been counted before this page sent any

  function ours() {
    const rows = counted > 1 && estimated ? estimated(counts, groups) : [];
    return rows.map((row, i) => ({ ...row, name: groupName(exp, groups[i]), truth: truthOf(groups[i]) }));
  }

  /** Only where all that is counted went out from here, each with a reading that is known, is there a truth of all. */
  const isAll = () => known > 0 && known === counted && (!last || (!others && last.reports === counted));
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

  /** What is learned where there is no histogram, such as a mean alone. */
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
      const since = answered ? `No answer since ${answered.toLocaleTimeString()}` : 'No answer yet from the server';
      const count = last ? `; the last count was ${number(last.reports)}` : '';
      return `${since}${count}. ${sent} went out from here.`;
    }
    if (last) {
      const late = known === counted && !others && last.reports < counted; // what was sent is still on its way
      const other = counted && !isAll() && !late ? ' Not all that is counted was sent from here, so nobody here knows the truth of it.' : '';
      return `The aggregator has counted ${reports(last.reports)}; ${sent} went out from here.${other}${alone(last)}`;
    }
    const where = to.broker
      ? `This server publishes no results. So this page counts what it sent itself: ${sent}.`
      : `This page counts in this browser, and forgets when it is reloaded: ${sent}. Nothing leaves this browser.`;
    if (!estimated) return `${where} It only counts: estimates of this kind (${exp.mechanism}, ${number(exp.domain)} values) are an aggregator’s work.`;
    return where;
  }

  /** The finding, or how many reports it takes. */
  function found(rows, n) {
    if (n === 1) return 'One report tells nothing yet: an estimate needs 2.';
    return last?.finding || (rows.length && !rows.some(tells) ? needed(rows, n) : '');
  }

  /** What is to be said of rows of which some may tell too little. */
  function few(rows, n) {
    const scatter = rows.length && n < FEW ? `${reports(n)} are too few to say much. Estimates are right on average; those of few reports scatter widely, also below 0% and above 100%.` : '';
    return `${scatter} ${rows.every(tells) ? '' : 'Shares that these reports tell too little about are not shown.'}`.trim();
  }

  async function ask() {
    try {
      last = await to.result(exp.name);
      answered = new Date();
      silent = false;
      others ??= !counted && (last?.reports ?? 0) > 0;
    } catch (error) {
      if (!(error instanceof NotSent)) throw error;
      silent = true;
    }
  }

  return {
    exp,
    /** One report was acknowledged; index: of its reading, null where nobody knows it any more. */
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
    /** Show what is known now, and give the newest result, null where none is published; what is asked while an answer is under way gets that answer. */
    refresh() {
      underWay ??= this.draw().finally(() => (underWay = null));
      return underWay;
    },
    async draw() {
      await ask();
      const all = last?.histogram?.length ? theirs(last) : ours();
      const rows = all.some(tells) ? all : [];
      $('source').textContent = source();
      $('compared').textContent = compared(rows);
      const n = (last ?? { reports: counted }).reports;
      $('found').textContent = found(all, n);
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
