/* A yes to each question: import { AskingClient } from 'hushmote/question' in place of the client.
 *
 * An experiment waits in `asking` until somebody has said yes to what it asks, and agree() was called. A yes applies to
 * that question, up to its epsilon: a version that asks something else, or raises epsilon, waits for another, and the one
 * before it goes on. A withdrawal ends a yes, and a no to everything ends all of them. It does what
 * device/kept_experiments.py does on a board with "ask": "each" in its policy. */
import { Client, check } from './hushmote.js';

const NO_QUESTION = ['v', 'epsilon', 'every', 'budget', 'window', 'g', 'q', 'reach', 'fanout', 'cells', 'weights'];
const WAITS = 'nobody has said yes to it: agree(name) says it';
const TRIES = 100;

const hex = (bytes) => Array.from(bytes, (b) => b.toString(16).padStart(2, '0')).join('');
const sha256 = async (text) => hex(new Uint8Array(await crypto.subtle.digest('SHA-256', new TextEncoder().encode(text))));
const same = (a, b) => a.length === b.length && a.every((x, i) => x === b[i]);

/** A JSON value as text: names sorted, without spaces. Numbers are texts that begin with a letter which is no ASCII. */
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

/** What a yes to a payload applies to, as 24 hexadecimal digits: 8 bytes of SHA-256 of what it asks, 4 of epsilon.
 *
 * Rejects with ExperimentRefused where no experiment has such fields. */
export async function question(payload) {
  const fields = parse(payload);
  check(fields !== null && typeof fields === 'object' && !Array.isArray(fields), 'not a JSON object');
  const epsilon = Number(canonical(Object.hasOwn(fields, 'epsilon') ? fields.epsilon : null));
  check(epsilon >= 0 && epsilon < 2 ** 32, 'epsilon must be an integer');
  return (await sha256(canonical(fields, true))).slice(0, 16) + epsilon.toString(16).padStart(8, '0');
}

/** Whether a yes, undefined for none, applies to a question: to the same one, with no lower epsilon. */
const covers = (yes, asked) => yes?.slice(0, 16) === asked.slice(0, 16) && asked.slice(16) <= yes.slice(16);

/** The last yes to each name, in a storage of its own. A record that is damaged is no yes. */
class Answers {
  #storage;

  constructor(storage) {
    this.#storage = storage;
  }

  /** [number of the newest record, name -> question]. */
  async #load() {
    const [number, record] = (await this.#storage.read()).sort(([a], [b]) => a - b).at(-1) ?? [0, ''];
    const json = record.slice(64);
    return [number, new Map(record === (await sha256(json)) + json && json ? JSON.parse(json) : [])];
  }

  read = async () => (await this.#load().catch(() => [0, new Map()]))[1];

  /** Keep what change(answers) makes of them; LedgerError where that fails. */
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

/** A Client that asks about each question. Only its own open() makes one. */
export class AskingClient extends Client {
  /** A client whose policy has ask: 'each'. answers: a storage for each yes, beside that of the ledger. */
  static async open({ policy: { ask, ...policy } = {}, answers, ...settings }) {
    check(ask === 'each' && answers, "an AskingClient has ask: 'each' in its policy, and a storage answers", 'SettingsError');
    const client = Object.setPrototypeOf(await super.open({ ...settings, policy }), this.prototype);
    /** name -> payload that waits for a yes of its own. */
    client.asking = new Map();
    client._answers = new Answers(answers);
    client._inForce = new Map(); // name -> question
    client._last = Promise.resolve();
    client._names = policy.experiments;
    client._stale = client.consent === false; // each yes is to be forgotten
    if (client._stale) await client._forget().catch(() => {});
    return client;
  }

  /** What run() resolves to, once all calls before have ended. */
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

  /** Take part in a payload; where it is refused, the version before it goes on. */
  async _take(name, asked, payload) {
    const before = this._inForce.get(name);
    this._inForce.delete(name); // whatever comes meanwhile is of neither version
    try {
      const exp = await super.enroll(payload);
      check(!this._stale, 'somebody said no meanwhile');
      this._inForce.set(name, asked);
      this.asking.delete(name);
      return exp;
    } catch (e) {
      if (before && !this._stale) this._inForce.set(name, before);
      throw e;
    }
  }

  /** As the client's, for a question that somebody has said yes to; another one waits in `asking`, and is refused. */
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

  /** Somebody says yes to a question that waits in `asking`; resolves as enroll() does.
   *
   * payload: what was shown, which must wait still. The yes holds once it is kept. */
  agree(name, payload) {
    return this._turn(async () => {
      check(this.consent !== false, 'somebody said no to everything');
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

  withdraw(name, payload) {
    return this._turn(async () => {
      await super.withdraw(name, payload);
      this._inForce.delete(name);
      this.asking.delete(name);
      await this._answers.change((answers) => answers.delete(name));
    });
  }

  report(name, value) {
    return this._turn(async () => ((await this._covers(name, this._inForce.get(name))) ? super.report(name, value) : null));
  }

  /** As the client's; a no forgets each yes as well, so that every question is asked again. */
  async setConsent(yes) {
    if (yes === true && this._stale) await this._turn(() => this._forget());
    if (yes === false) this._stale = true;
    const written = super.setConsent(yes); // a no silences at once
    const forgotten = yes === false ? this._turn(() => this._forget()) : undefined;
    await Promise.allSettled([written, forgotten]);
    await written;
    await forgotten;
  }

  async status() {
    const status = await super.status();
    for (const [name, line] of Object.entries(status.experiments)) {
      const isKnown = await this._covers(name, this._inForce.get(name));
      if (!isKnown && line.left !== null) Object.assign(line, { state: 'absent', left: null });
    }
    return status;
  }
}
