// What is learned: the server's numbers where there are some, else those of the reports that this page sent.
import { compared, drawHistogram, fillTable } from './chart.js';
import { canEstimate, estimator } from './estimate.js';
import { belief, codeOf, groupName, groupsOf, nats, number } from './words.js';

const $ = (id) => document.getElementById(id);

/** The view of one experiment; to: what door() or examples() gives. */
export function makeView(exp, to) {
  const groups = groupsOf(exp);
  const estimated = canEstimate(exp) ? estimator(exp) : null;
  const counts = new Float64Array(estimated ? exp.code_count : 0);
  const truth = new Float64Array(exp.domain);
  let [counted, known] = [0, 0];
  let underWay = null;

  function ours() {
    const rows = counted > 1 && estimated ? estimated(counts, groups) : [];
    return rows.map((row, i) => ({ ...row, name: groupName(exp, groups[i]), truth: truthOf(groups[i]) }));
  }

  const truthOf = (values) => (known ? values.reduce((sum, v) => sum + truth[v], 0) / known : null);

  function theirs(result) {
    const middle = (v) => (exp.low + ((exp.high - exp.low) * (v + 0.5)) / exp.domain) / 1000;
    const all = Array.from({ length: exp.domain }, (_, v) => v);
    return result.histogram.map((row, i) => ({
      ...row,
      name: row.from === null ? row.name : `${number(row.from)} to ${number(row.to)}`,
      truth: truthOf(row.from === null ? [i] : all.filter((v) => row.from <= middle(v) && middle(v) < row.to)),
    }));
  }

  function source(result) {
    const sent = `${number(counted)} ${counted === 1 ? 'report' : 'reports'}`;
    if (result) {
      const other = result.reports - counted > 0 ? ' The truth below is only that of the boards sent from here.' : '';
      return `The aggregator has counted ${number(result.reports)} reports; ${sent} went out from here.${other}`;
    }
    const where = to.broker
      ? `This server publishes no results. So this page counts what it sent itself: ${sent}.`
      : `There is no broker behind this page. It counts in this browser, and forgets when it is reloaded: ${sent}. Nothing leaves this browser.`;
    if (!estimated) return `${where} It only counts: estimates of this kind (${exp.mechanism}, ${number(exp.domain)} values) are an aggregator’s work.`;
    return counted > 1 ? where : `${where} Estimates need at least two.`;
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
    result: () => to.result(exp.name),
    counted: () => counted,
    /** Show what is known now; what is asked while an answer is under way gets that answer. */
    refresh() {
      underWay ??= this.draw().finally(() => (underWay = null));
      return underWay;
    },
    async draw() {
      const result = await to.result(exp.name);
      const rows = result?.histogram?.length ? theirs(result) : ours();
      $('source').textContent = source(result);
      $('compared').textContent = compared(rows);
      fillTable($('rows'), rows);
      if (rows.length) drawHistogram($('chart'), rows, Math.max($('chart').clientWidth, 280));
      else $('chart').replaceChildren();
      $('live').textContent = `Who watches this change report by report learns as much as from the reports themselves, each of ε ${nats(exp.epsilon)}: ${belief(exp.epsilon, 'one report')}`;
      return result;
    },
  };
}
