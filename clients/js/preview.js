/**
 * @file What a client would send, and what it has sent, in words for its user. Spends nothing.
 *
 * The words are device/preview.py's. In readings, numbers are written with at most three decimals.
 */
import { ONE, check } from './hushmote.js';

const LAST = 8;
const FIRST_YEAR = 2025; // a clock that shows an earlier time is not set

const tenths = (n) => String(n / 10);
const nats = (epsilon) => String(Math.floor(epsilon / 1000) / 1000);
const remaining = (left) => `${left} more report${left === 1 ? '' : 's'} left`;

function inWords(reading) {
  if (Array.isArray(reading)) return reading.map(inWords).join(', ');
  if (typeof reading === 'boolean') return reading ? 'yes' : 'no';
  if (typeof reading === 'number') return String(Math.round(reading * 1000) / 1000);
  return reading == null ? 'no reading' : String(reading);
}

/** Return how many codes stand for a reading, and how often one of them is sent, in tenths of a percent; null for a mechanism like sw. */
function truthful({ responses }) {
  const used = responses?.filter(([weight]) => weight);
  if (!used) return null;
  const total = used.reduce((sum, [weight]) => sum + weight, 0) * ONE;
  const truth = used.reduce((sum, [weight, , , threshold]) => sum + weight * threshold, 0);
  const chance = Number((1000n * BigInt(truth)) / BigInt(total));
  return [used.reduce((sum, [, , seeds]) => sum + seeds, 0), chance];
}

/** Name a log's witnesses by the first 16 digits of their keys, and say how many are needed if not all. */
function witnesses({ keys, need }) {
  const names = keys.slice(1).map((key) => key.slice(0, 16));
  const start = need < names.length ? `${need} of ` : '';
  return start + [...(names[1] ? [names.slice(0, -1).join(', ')] : []), names.at(-1)].join(' and ');
}

/**
 * Describe what report() would send.
 *
 * @param {Client} client The client.
 * @param {string} name Name of an experiment in the policy.
 * @param {Reading} reading The reading.
 * @param {?string} [group] The open group's value; defaults to the client's.
 * @returns {Promise<string>} Lines of text.
 * @throws {TypeError} If the experiment requires another type.
 * @throws {Error} SettingsError if the policy does not include the name.
 */
export async function preview(client, name, reading, group) {
  const { consent, experiments } = await client.status();
  check(Object.hasOwn(experiments, name), `${name} is not in the policy`, 'SettingsError');
  const exp = client.experiment(name);
  if (!exp) return `${name}: there is no such experiment yet.`;
  const index = await exp.bucket(reading);
  const groupIndex = exp.groups.indexOf(group ?? client.groups[exp.group]);
  const every = exp.everyOf.at(groupIndex); // -1: "other", the last one
  const bytes = 9 + !!exp.group + exp.codeBytes + 8 * client.keyed;
  const lines = [`${name}: one of ${exp.codes} codes, in ${bytes} bytes.`];
  const [count, chance] = truthful(exp) ?? [];
  if (index === null) {
    lines.push('No reading: a uniformly drawn value takes its place.');
  } else if (count) {
    const value = inWords(index === exp.none ? null : reading);
    const start = count === 1 ? `One code stands for ${value}. It` : `${count} codes stand for ${value}. One of these`;
    lines.push(`${start} is sent in ${tenths(chance)}% of reports.`);
  }
  const times = tenths(Math.ceil(10 * Math.exp(exp.epsilon / 1e6)));
  lines.push(`No code is more than ${times} times as likely at one reading as at another.`);
  if (exp.group) lines.push(`Unprotected, everyone can see ${exp.group} ${exp.groups[groupIndex] ?? 'other'} in the report.`);
  if (every > 1) lines.push(`One reading in ${every} is reported, chosen before anything looks at it.`);
  lines.push(`A report costs epsilon ${nats(exp.epsilon)}; ${remaining(experiments[name].left)}.`);
  if (client.log) lines.push(`Asked of every device alike, checked by ${witnesses(client.log)}; entry ${experiments[name].leaf} of ${client.log.origin}.`);
  if (!consent) lines.push('Nothing is sent: nobody at this board has opted in.');
  return lines.join('\n');
}

/**
 * Describe a report in one line: its question, code, size and cost, and the remaining budget.
 *
 * @param {Client} client The client that made it.
 * @param {Uint8Array} report The report.
 * @returns {Promise<string>} The line.
 */
export async function describe(client, report) {
  const { experiments } = await client.status();
  for (const name in experiments) {
    const exp = client.experiment(name);
    if (!exp?.sha256.subarray(0, 4).every((byte, i) => byte === report[i + 1])) continue;
    const end = report.length - 8 * (report[0] & 1);
    const code = report.subarray(end - exp.codeBytes, end).reduce((number, byte) => 256 * number + byte, 0);
    const size = `code ${code} of ${exp.codes}, ${report.length} bytes`;
    return `${name}: ${size}, epsilon ${nats(exp.epsilon)}; ${remaining(experiments[name].left)}`;
  }
  return `a question that is no longer asked: ${report.length} bytes`;
}

/** The last 8 reports in words, newest last, each after its time in UTC. */
export class LastReports {
  lines = [];

  /**
   * Add a report.
   *
   * @param {Client} client The client that made it.
   * @param {Uint8Array} report The report.
   * @param {Date} [at] When it was made.
   * @returns {Promise<void>}
   */
  async add(client, report, at = new Date()) {
    const time = at.getUTCFullYear() < FIRST_YEAR ? '' : `${at.toISOString().slice(0, 16).replace('T', ' ')} `;
    this.lines = [...this.lines.slice(1 - LAST), time + (await describe(client, report))];
  }
}

/**
 * Return the last reports, the consent and the budget, for the device's owner.
 *
 * @param {Client} client The client.
 * @param {LastReports} last The last reports.
 * @returns {Promise<string>} JSON.
 */
export async function exportJson(client, last) {
  const { consent, locked, sum, squares, experiments } = await client.status();
  const numbers = Object.entries(experiments).map(([name, { reports, left }]) => {
    const line = { epsilon: client.experiment(name)?.epsilon ?? 0, reports, left: left ?? 0 };
    return `${JSON.stringify(name)}: ${JSON.stringify(line)}`;
  });
  const start = JSON.stringify({ v: 1, device: client.deviceId, consent, locked: locked !== null }).slice(0, -1);
  // The sums can exceed 2^53, so they are written from their texts.
  return `${start}, "sum": ${sum}, "squares": ${squares}, "experiments": {${numbers}}, "last": ${JSON.stringify(last.lines)}}`;
}
