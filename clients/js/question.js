/**
 * @file A separate opt-in to each question: import { AskingClient } from 'hushmote/question' instead of the client.
 *
 * An experiment waits in `asking` until someone has opted in to its question and the application calls agree(). An
 * opt-in applies to that question, up to its epsilon: a version that asks something else, or raises epsilon, waits for
 * another opt-in, and the previous version continues. A withdrawal ends an opt-in, and an opt-out of everything ends
 * all of them. It does what device/kept_experiments.py does on a board with "ask": "each" in its policy.
 */
import { Client, check } from './hushmote.js';

const NO_QUESTION = ['v', 'epsilon', 'every', 'budget', 'window', 'g', 'q', 'reach', 'fanout', 'cells', 'weights'];
const WAITS = 'nobody has said yes to it: agree(name) says it';
const TRIES = 100;

const hex = (bytes) => Array.from(bytes, (b) => b.toString(16).padStart(2, '0')).join('');
const sha256 = async (text) => hex(new Uint8Array(await crypto.subtle.digest('SHA-256', new TextEncoder().encode(text))));
const same = (a, b) => a.length === b.length && a.every((x, i) => x === b[i]);

/** Return a JSON value as text without spaces, names sorted. Its numbers are strings that begin with a non-ASCII letter. */
function canonical(value, isTop = false) {
  if (Array.isArray(value)) return `[${value.map((x) => canonical(x)).join()}]`;
  if (typeof value === 'string') {
    if (value[0] !== 'é') return `"${value}"`;
    check(/^é-?\d+$/.test(value), 'its fields cannot be read');
    return value.slice(1).replace(/^-0$/, '0');
  }
  check(value !== null && typeof value === 'object', 'its fields cannot be read');
  const names = Object.keys(value).filter((name) => !isTop || !NO_QUESTION.includes(name));
  return `{${names
    .sort()
    .map((name) => `"${name}":${canonical(value[name])}`)
    .join()}}`;
}

function parse(payload) {
  const end = payload.indexOf(0);
  const json = end < 0 ? payload : payload.subarray(0, end);
  check(json.length <= 1024 && json.every((c) => c >= 32 && c < 127 && c !== 92), 'its fields cannot be read');
  const text = new TextDecoder().decode(json);
  try {
    JSON.parse(text);
    return JSON.parse(text.replace(/("[^"]*")|-?\d[-+.\deE]*/g, (token, string) => string ?? `"é${token}"`));
  } catch {
    return null;
  }
}

/**
 * Return the question of a payload, to which an opt-in applies.
 *
 * @param {Uint8Array} payload An experiment, signed or not.
 * @returns {Promise<string>} 24 hexadecimal digits: 8 bytes of SHA-256 of the question, 4 of epsilon.
 * @throws {Error} ExperimentRefused if no experiment has such fields.
 */
export async function question(payload) {
  const fields = parse(payload);
  check(fields !== null && typeof fields === 'object' && !Array.isArray(fields), 'not a JSON object');
  const epsilon = Number(canonical(Object.hasOwn(fields, 'epsilon') ? fields.epsilon : null));
  check(epsilon >= 0 && epsilon < 2 ** 32, 'epsilon must be an integer');
  return (await sha256(canonical(fields, true))).slice(0, 16) + epsilon.toString(16).padStart(8, '0');
}

/** Return whether an opt-in (undefined for none) applies to a question: to the same one, with at least its epsilon. */
const covers = (yes, asked) => yes?.slice(0, 16) === asked.slice(0, 16) && asked.slice(16) <= yes.slice(16);

/** The last opt-in to each name, in its own storage. A damaged record counts as none. */
class Answers {
  #storage;

  constructor(storage) {
    this.#storage = storage;
  }

  /** Return [number of the newest record, name -> question]. */
  async #load() {
    const [number, record] = (await this.#storage.read()).sort(([a], [b]) => a - b).at(-1) ?? [0, ''];
    const json = record.slice(64);
    return [number, new Map(record === (await sha256(json)) + json && json ? JSON.parse(json) : [])];
  }

  read = async () => (await this.#load().catch(() => [0, new Map()]))[1];

  /** Store the answers after change(answers), or reject with LedgerError. */
  async change(change) {
    for (let tries = 0; tries < TRIES; tries++) {
      try {
        const [number, answers] = await this.#load();
        change(answers);
        const json = JSON.stringify([...answers]);
        if (await this.#storage.write(number + 1, (await sha256(json)) + json)) return;
      } catch (e) {
        check(false, `storage failed: ${e}`, 'LedgerError');
      }
    }
    check(false, 'others write to it', 'LedgerError');
  }
}

/** A Client that asks about each question. AskingClient.open() makes one. */
export class AskingClient extends Client {
  /**
   * Open a client that asks about each question.
   *
   * @param {Object} settings As for Client.open(), and:
   * @param {Policy} settings.policy With ask: 'each'.
   * @param {Storage} settings.answers Where opt-ins are stored; not the storage of the ledger.
   * @returns {Promise<AskingClient>} The client.
   * @throws {Error} SettingsError for an invalid setting.
   */
  static async open({ policy: { ask, ...policy } = {}, answers, ...settings }) {
    check(ask === 'each' && answers, "an AskingClient has ask: 'each' in its policy, and a storage answers", 'SettingsError');
    const client = Object.setPrototypeOf(await super.open({ ...settings, policy }), this.prototype);
    /** @type {Map<string, Uint8Array>} Payloads that wait for an opt-in, by name. */
    client.asking = new Map();
    client._answers = new Answers(answers);
    client._inForce = new Map(); // name -> question
    client._last = Promise.resolve();
    client._names = policy.experiments;
    client._stale = client.consent === false; // whether to forget all opt-ins
    if (client._stale) await client._forget().catch(() => {});
    return client;
  }

  /** Call run() once all previous calls have ended, and return its promise. */
  _turn(run) {
    const turn = this._last.then(run);
    this._last = turn.catch(() => {});
    return turn;
  }

  async _forget() {
    this._inForce.clear();
    await this._answers.change((answers) => answers.clear());
    this._stale = false;
  }

  async _covers(name, asked) {
    return asked !== undefined && !this._stale && covers((await this._answers.read()).get(name), asked);
  }

  /** Take part in a payload; if it is refused, the previous version continues. */
  async _take(name, asked, payload) {
    const before = this._inForce.get(name);
    this._inForce.delete(name); // a reading in the meantime belongs to neither version
    try {
      const exp = await super.enroll(payload);
      check(!this._stale, 'someone said no meanwhile');
      this._inForce.set(name, asked);
      this.asking.delete(name);
      return exp;
    } catch (e) {
      if (before && !this._stale) this._inForce.set(name, before);
      throw e;
    }
  }

  /**
   * Take part in an experiment, like Client.enroll(), if someone has opted in to its question. Another one waits in
   * `asking`, and is refused.
   *
   * @param {Uint8Array} payload The retained message.
   * @returns {Promise<Experiment>} The experiment.
   * @throws {Error} ExperimentRefused, with the reason as its message.
   */
  enroll(payload) {
    return this._turn(async () => {
      const asked = await question(payload);
      const { name } = parse(payload);
      if (!this._names.includes(name)) return super.enroll(payload); // which refuses it
      if (await this._covers(name, asked)) return this._take(name, asked, payload);
      this.asking.set(name, payload);
      return check(false, WAITS);
    });
  }

  /**
   * Opt in to a question that waits in `asking`, for someone at the client. It takes effect once it is stored.
   *
   * @param {string} name Name of the experiment.
   * @param {Uint8Array} [payload] The question that was shown, which must still be waiting.
   * @returns {Promise<Experiment>} The experiment.
   * @throws {Error} ExperimentRefused if no question or another one is waiting, or someone has opted out of everything;
   *     LedgerError if the opt-in cannot be stored.
   */
  agree(name, payload) {
    return this._turn(async () => {
      check(this.consent !== false, 'someone said no to everything');
      const waiting = this.asking.get(name);
      check(waiting, `no question of ${name} waits`);
      check(!payload || same(payload, waiting), 'another question waits now');
      this.asking.delete(name);
      const asked = await question(waiting);
      const exp = await this._take(name, asked, waiting);
      await this._answers.change((answers) => answers.set(name, asked));
      return exp;
    });
  }

  /**
   * Stop taking part in an experiment, like Client.withdraw(), and forget the opt-in to it.
   *
   * @param {string} name Name of the experiment.
   * @param {Uint8Array} [payload] The retained message that withdraws it; none if the application itself decides.
   * @returns {Promise<void>}
   * @throws {Error} ExperimentRefused for any other payload; LedgerError if the storage fails.
   */
  withdraw(name, payload) {
    return this._turn(async () => {
      await super.withdraw(name, payload);
      this._inForce.delete(name);
      this.asking.delete(name);
      await this._answers.change((answers) => answers.delete(name));
    });
  }

  /**
   * Randomize a reading, like Client.report(), if someone has opted in to the question.
   *
   * @param {string} name Name of the experiment.
   * @param {Reading} value The reading; null for a missing one.
   * @returns {Promise<?Uint8Array>} A report to publish, already debited, or null.
   * @throws {TypeError} If the experiment takes another type; nothing was spent.
   * @throws {Error} EntropyError if there is no randomness; nothing was spent.
   */
  report(name, value) {
    return this._turn(async () => ((await this._covers(name, this._inForce.get(name))) ? super.report(name, value) : null));
  }

  /**
   * Store an opt-in or opt-out, like Client.setConsent(). An opt-out also forgets the opt-ins to single questions, so
   * that each is asked again.
   *
   * @param {boolean} yes Whether the device takes part.
   * @returns {Promise<void>}
   * @throws {Error} LedgerError if the answer cannot be stored.
   */
  async setConsent(yes) {
    if (yes === true && this._stale) await this._turn(() => this._forget());
    if (yes === false) this._stale = true;
    const written = super.setConsent(yes); // an opt-out silences the client at once
    const forgotten = yes === false ? this._turn(() => this._forget()) : undefined;
    await Promise.allSettled([written, forgotten]);
    await written;
    await forgotten;
  }

  /**
   * Return the state of this client, like Client.status().
   *
   * @returns {Promise<Status>} Plain values; an experiment without an opt-in is absent.
   */
  async status() {
    const status = await super.status();
    for (const [name, line] of Object.entries(status.experiments)) {
      const isKnown = await this._covers(name, this._inForce.get(name));
      if (!isKnown && line.left !== null) Object.assign(line, { state: 'absent', left: null });
    }
    return status;
  }
}
