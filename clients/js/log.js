/**
 * @file Clients that take part only in experiments that a public log has, and witnesses watch:
 *
 *     const log = { origin: 'example.org/questions', keys: [LOG, WITNESS, WITNESS], need: 2 };
 *     const client = await LoggedClient.open({ ...settings, policy: { ...policy, log } });
 *
 * Each witness signs only if its own rule holds: one version of an experiment at a time. So nobody can ask one device what
 * the others are not asked. For the bytes of a proof and for citations see device/ldp_log.py and docs/wire-format.md.
 */
import { Client, check, isSigned, readJson } from './hushmote.js';

const LONGEST = 1600; // bytes of a proof
const NODE = 32; // bytes of a hash
const SIGNATURE = 64; // r and s
const START = 4; // of a witness's key, before its signature
const WITNESS = START + SIGNATURE;
const MISSING = 'its proof from the log is missing';
const MALFORMED = 'its proof is malformed';
const WRONG = 'it is not in the log, or a signature in its proof is wrong';
const FEW = 'too few witnesses have signed its proof';
const EVERY = 'every must be one number with a log';
const FORM =
  "policy: log must be origin, keys and need: a name without spaces; 2 to 8 keys of 128 hex digits that differ in the first 8, the log's first; the number of witnesses needed, more than half of those listed";
const KEYED = 'policy: log requires announceKey: without serials, earlier versions could return';

const utf8 = (text) => new TextEncoder().encode(text);
const unhex = (text) => Uint8Array.from(text.match(/../g), (two) => parseInt(two, 16));
const joined = (...parts) => Uint8Array.from(parts.flatMap((part) => [...part]));
const sha256 = async (...parts) => new Uint8Array(await crypto.subtle.digest('SHA-256', joined(...parts)));

const isName = (x) => typeof x === 'string' && /^[!-*,-~]{1,255}$/.test(x);
const isKey = (x) => typeof x === 'string' && /^[0-9a-f]{128}$/i.test(x);
const start = (key) => key.slice(0, 2 * START);
const lowercase = (keys) => keys.map((key) => key.toLowerCase());

function isLog(log) {
  const { origin, keys, need, ...more } = log ?? {};
  const areKeys = Array.isArray(keys) && keys.length >= 2 && keys.length <= 8 && keys.every(isKey);
  // More than half of the witnesses: two such groups have one in common. The log's own key is one of the keys.
  const isNeed = Number.isInteger(need) && 2 * need >= keys?.length && need < keys.length;
  return isName(origin) && areKeys && new Set(lowercase(keys).map(start)).size === keys.length && isNeed && !Object.keys(more).length;
}

/**
 * Return an experiment's index in a log.
 *
 * @param {Log} log The policy's log.
 * @param {string} fleet The fleet.
 * @param {string} name Name of the experiment.
 * @param {Uint8Array} payload The retained message on its topic.
 * @param {?Uint8Array} proof The retained message on the topic of its proof.
 * @returns {Promise<number>} The index.
 * @throws {Error} ExperimentRefused if the proof does not show it.
 */
export async function verifyProof(log, fleet, name, payload, proof) {
  check(proof?.length, MISSING);
  const number = new DataView(Uint8Array.from([...proof.subarray(0, 8), ...new Uint8Array(8)]).buffer);
  const size = number.getUint32(4);
  const end = 9 + NODE * (proof[8] ?? 0);
  const leaf = number.getUint32(0);
  let index = leaf;
  let last = size - 1;
  const rest = proof.length - end - SIGNATURE;
  check(proof.length <= LONGEST && rest >= 0 && rest % WITNESS === 0 && index <= last, MALFORMED);
  let node = await sha256([0], utf8(`hushmote/v1/${fleet}/experiment/${name}\0`), payload);
  for (let at = 9; at < end; at += NODE) {
    check(last, MALFORMED);
    const sibling = proof.subarray(at, at + NODE);
    if (index & 1 || index === last) {
      node = await sha256([1], sibling, node);
      for (; index && !(index & 1); index >>>= 1) last >>>= 1;
    } else {
      node = await sha256([1], node, sibling);
    }
    index >>>= 1;
    last >>>= 1;
  }
  check(!last, MALFORMED);
  const text = utf8(`${log.origin}\n${size}\n${btoa(String.fromCharCode(...node))}\n`);
  let count = 0;
  for (const key of log.keys.map(unhex)) {
    let at = end;
    if (count) {
      at += SIGNATURE;
      while (at < proof.length && !key.subarray(0, START).every((byte, i) => byte === proof[at + i])) at += WITNESS;
      at += START;
    }
    // No more than are needed, however many a proof has.
    if (count > log.need || at >= proof.length) continue;
    check(await isSigned(key, text, proof.subarray(at, at + SIGNATURE)), WRONG);
    count += 1;
  }
  check(count > log.need, FEW);
  return leaf;
}

/**
 * Return a class of clients whose policy has a log.
 *
 * @param {typeof Client} Base Client, or AskingClient for an opt-in to each question.
 * @returns {typeof Client} The class. enroll() takes the proof as its second argument.
 */
export const withLog = (Base) =>
  class extends Base {
    /**
     * Open a client on a storage, like Client.open().
     *
     * @param {Object} settings As for the base class, with `log` in the policy.
     * @returns {Promise<Client>} The client.
     * @throws {Error} SettingsError for an invalid setting.
     */
    static async open({ policy: { log, ...policy } = {}, ...settings }) {
      check(isLog(log), FORM, 'SettingsError');
      check(settings.announceKey, KEYED, 'SettingsError');
      const client = Object.setPrototypeOf(await super.open({ ...settings, policy }), this.prototype);
      /** The policy's log. */
      client.log = { ...log, keys: lowercase(log.keys) };
      client._leaves = new Map(); // SHA-256 of a message in the log -> its index
      client._unproven = new Map(); // name -> why its last message was refused
      return client;
    }

    /**
     * Take part in a retained experiment that the log has.
     *
     * @param {Uint8Array} payload The retained message.
     * @param {?Uint8Array} proof The retained message on the topic of its proof.
     * @returns {Promise<Experiment>} The experiment.
     * @throws {Error} ExperimentRefused, with the reason as its message.
     */
    async enroll(payload, proof) {
      const zero = payload.indexOf(0);
      const { name, every } = readJson(zero < 0 ? payload : payload.subarray(0, zero)) ?? {};
      if (typeof name !== 'string') return super.enroll(payload); // refuses it
      try {
        // With a list, devices of one group could answer while all others are silent.
        check(!Array.isArray(every), EVERY);
        const leaf = await verifyProof(this.log, this.fleet, name, payload, proof);
        this._leaves.set(String(await sha256(payload.subarray(0, zero))), leaf);
        this._unproven.delete(name);
      } catch (e) {
        this._unproven.set(name, e.message);
        throw e;
      }
      return super.enroll(payload);
    }

    /**
     * Stop taking part in an experiment, like Client.withdraw(). A withdrawal needs no proof: it is always safe to stop.
     *
     * @param {string} name Name of the experiment.
     * @param {Uint8Array} [payload] The retained message that withdraws it; omit it if the application makes the decision.
     * @returns {Promise<void>}
     * @throws {Error} ExperimentRefused for any other payload.
     */
    async withdraw(name, payload) {
      await super.withdraw(name, payload);
      this._unproven.delete(name);
    }

    /**
     * Return this client's state, like Client.status().
     *
     * @returns {Promise<Status>} Plain values. `leaf` is the index in the log of an experiment in force.
     */
    async status() {
      const status = await super.status();
      for (const [name, line] of Object.entries(status.experiments)) {
        const exp = this.experiment(name);
        const reason = this._unproven.get(name);
        if (exp) line.leaf = this._leaves.get(String(exp.sha256));
        if (reason) line.reason = reason;
        if (reason && !exp) line.state = 'refused';
      }
      return status;
    }
  };

/** A client whose policy has a log. */
export const LoggedClient = withLog(Client);
