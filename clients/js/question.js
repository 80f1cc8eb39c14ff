/**
 * @file Separate opt-in to each question: import { AskingClient } from 'hushmote/question' instead of Client.
 *
 * An experiment waits in `asking` until someone has opted in to its question and the application calls agree(). An
 * opt-in applies to that question, up to its epsilon: a version that asks a different question or raises epsilon waits
 * for another opt-in, and the previous version continues. A withdrawal ends one opt-in, and a general opt-out ends all
 * of them. This is the counterpart of device/kept_experiments.py on a board with "ask": "each" in its policy.
 */
import { Client, check, readJson } from './hushmote.js';

const NO_QUESTION = ['v', 'epsilon', 'every', 'budget', 'window', 'g', 'q', 'reach', 'fanout', 'cells', 'weights', 'groups'];
const WAITS = 'nobody has opted in to it; call agree(name)';
const TRIES = 100;

const hex = (bytes) => Array.from(bytes, (b) => b.toString(16).padStart(2, '0')).join('');
const sha256 = async (text) => hex(new Uint8Array(await crypto.subtle.digest('SHA-256', new TextEncoder().encode(text))));
const same = (a, b) => a.length === b.length && a.every((x, i) => x === b[i]);

/** Return a JSON value as text without spaces and with sorted names. */
function canonical(value, isTop = false) {
  if (Array.isArray(value)) return `[${value.map((x) => canonical(x)).join()}]`;
  if (typeof value === 'string') return `"${value}"`;
  if (typeof value === 'number' || typeof value === 'bigint') return `${value}`;
  check(value !== null && typeof value === 'object', 'its fields cannot be read');
  const names = Object.keys(value).filter((name) => !isTop || !NO_QUESTION.includes(name));
  return `{${names
    .sort()
    .map((name) => `"${name}":${canonical(value[name])}`)
    .join()}}`;
}

function parse(payload) {
  const end = payload.indexOf(0);
  return readJson(end < 0 ? payload : payload.subarray(0, end));
}

/**
 * Return a payload's question, to which an opt-in applies.
 *
 * @param {Uint8Array} payload An experiment, signed or not.
 * @returns {Promise<string>} 24 hexadecimal digits: 8 bytes of the question's SHA-256, and 4 bytes of epsilon.
 * @throws {Error} ExperimentRefused if the payload cannot be an experiment.
 */
export async function question(payload) {
  const fields = parse(payload);
  check(fields && typeof fields === 'object' && !Array.isArray(fields), 'not a JSON object');
  const epsilon = Number(canonical(Object.hasOwn(fields, 'epsilon') ? fields.epsilon : null));
  check(epsilon >= 0 && epsilon < 2 ** 32, 'epsilon must be an integer');
  return (await sha256(canonical(fields, true))).slice(0, 16) + epsilon.toString(16).padStart(8, '0');
}

/** Return whether an opt-in (undefined for none) covers a question: it is for the same question and at least its epsilon. */
const covers = (optIn, id) => optIn?.slice(0, 16) === id.slice(0, 16) && id.slice(16) <= optIn.slice(16);

/** The last opt-in to each name, in a separate storage. A damaged record counts as no opt-in. */
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

  /** Apply change(answers) and store the result, or reject with LedgerError. */
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
    check(false, 'in use by another client', 'LedgerError');
  }
}

/** A Client that asks about each question. Create one with AskingClient.open(). */
export class AskingClient extends Client {
  /**
   * Open a client that asks about each question.
   *
   * @param {Object} settings Same as for Client.open(), and:
   * @param {Policy} settings.policy Must contain ask: 'each'.
   * @param {Storage} settings.answers Where opt-ins are stored; must not be the ledger's storage.
   * @returns {Promise<AskingClient>} The client.
   * @throws {Error} SettingsError for an invalid setting.
   */
  static async open({ policy: { ask, ...policy } = {}, answers, ...settings }) {
    check(ask === 'each' && answers, "an AskingClient requires ask: 'each' in its policy, and answers", 'SettingsError');
    const client = Object.setPrototypeOf(await super.open({ ...settings, policy }), this.prototype);
    /** @type {Map<string, Uint8Array>} Payloads that wait for an opt-in, by name. */
    client.asking = new Map();
    client._answers = new Answers(answers);
    client._enrolled = new Map(); // name -> question
    client._last = Promise.resolve();
    client._names = policy.experiments;
    client._stale = client.consent === false; // whether to forget all opt-ins
    if (client._stale) await client._forget().catch(() => {});
    return client;
  }

  /** Call run() once all previous calls have ended, and return its promise. */
  _queue(run) {
    const result = this._last.then(run);
    this._last = result.catch(() => {});
    return result;
  }

  async _forget() {
    this._enrolled.clear();
    await this._answers.change((answers) => answers.clear());
    this._stale = false;
  }

  async _isCovered(name, id) {
    return id !== undefined && !this._stale && covers((await this._answers.read()).get(name), id);
  }

  /** Enroll in a payload's experiment. If it is refused, the previous version continues. */
  async _enroll(name, id, payload) {
    const previous = this._enrolled.get(name);
    this._enrolled.delete(name); // readings in the meantime belong to neither version
    try {
      const exp = await super.enroll(payload);
      check(!this._stale, 'someone has opted out in the meantime');
      this._enrolled.set(name, id);
      this.asking.delete(name);
      return exp;
    } catch (e) {
      if (previous && !this._stale) this._enrolled.set(name, previous);
      throw e;
    }
  }

  /**
   * Take part in an experiment, like Client.enroll(), if someone has opted in to its question. Otherwise the experiment
   * is refused, and its question waits in `asking`.
   *
   * @param {Uint8Array} payload The retained message.
   * @returns {Promise<Experiment>} The experiment.
   * @throws {Error} ExperimentRefused, with the reason as its message.
   */
  enroll(payload) {
    return this._queue(async () => {
      const id = await question(payload);
      const { name } = parse(payload);
      if (!this._names.includes(name)) return super.enroll(payload); // refuses it
      if (await this._isCovered(name, id)) return this._enroll(name, id, payload);
      this.asking.set(name, payload);
      return check(false, WAITS);
    });
  }

  /**
   * Opt in to a question that waits in `asking`, on behalf of someone at the client. The opt-in takes effect once it is
   * stored.
   *
   * @param {string} name Name of the experiment.
   * @param {Uint8Array} [payload] The question that was shown, which must still be waiting.
   * @returns {Promise<Experiment>} The experiment.
   * @throws {Error} ExperimentRefused if no question or a different one is waiting, or someone has opted out of everything;
   *     LedgerError if the opt-in cannot be stored.
   */
  agree(name, payload) {
    return this._queue(async () => {
      check(this.consent !== false, 'someone has opted out of everything');
      const waiting = this.asking.get(name);
      check(waiting, `no question of ${name} is waiting`);
      check(!payload || same(payload, waiting), 'another question is waiting now');
      this.asking.delete(name);
      const id = await question(waiting);
      const exp = await this._enroll(name, id, waiting);
      await this._answers.change((answers) => answers.set(name, id));
      return exp;
    });
  }

  /**
   * Stop taking part in an experiment, like Client.withdraw(), and forget the opt-in to it.
   *
   * @param {string} name Name of the experiment.
   * @param {Uint8Array} [payload] The retained message that withdraws it; omit it if the application makes the decision.
   * @returns {Promise<void>}
   * @throws {Error} ExperimentRefused for any other payload; LedgerError if the storage fails.
   */
  withdraw(name, payload) {
    return this._queue(async () => {
      await super.withdraw(name, payload);
      this._enrolled.delete(name);
      this.asking.delete(name);
      await this._answers.change((answers) => answers.delete(name));
    });
  }

  /**
   * Randomize a reading, like Client.report(), if someone has opted in to the question.
   *
   * @param {string} name Name of the experiment.
   * @param {Reading} value The reading; null for a missing one.
   * @param {?string} [group] The open group's value in the period that the reading describes.
   * @returns {Promise<?Uint8Array>} A report to publish, already debited, or null.
   * @throws {TypeError} If the experiment requires another type; nothing was spent.
   * @throws {Error} EntropyError if the random source is missing or stuck; nothing was spent.
   */
  report(name, value, group) {
    const make = async () => ((await this._isCovered(name, this._enrolled.get(name))) ? super.report(name, value, group) : null);
    return this._queue(make);
  }

  /**
   * Store an opt-in or opt-out, like Client.setConsent(). An opt-out also deletes the opt-ins to individual questions,
   * so all of them are asked again.
   *
   * @param {boolean} yes Whether the device takes part.
   * @returns {Promise<void>}
   * @throws {Error} LedgerError if the answer cannot be stored.
   */
  async setConsent(yes) {
    if (yes === true && this._stale) await this._queue(() => this._forget());
    if (yes === false) this._stale = true;
    const written = super.setConsent(yes); // an opt-out takes effect immediately
    const forgotten = yes === false ? this._queue(() => this._forget()) : undefined;
    await Promise.allSettled([written, forgotten]);
    await written;
    await forgotten;
  }

  /**
   * Return this client's state, like Client.status().
   *
   * @returns {Promise<Status>} Plain values. An experiment without an opt-in has state 'absent'.
   */
  async status() {
    const status = await super.status();
    for (const [name, line] of Object.entries(status.experiments)) {
      const isKnown = await this._isCovered(name, this._enrolled.get(name));
      if (!isKnown && line.left !== null) Object.assign(line, { state: 'absent', left: null });
    }
    return status;
  }
}
