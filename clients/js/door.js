/** @file Access to the broker through `hushmote door`: receive experiments, and send reports until acknowledged. */

const TIMEOUT_MS = 10_000; // longer than a door waits for its broker
const MAX_WAIT_S = 3600; // whatever an answer requests
const NOT_A_DOOR = 'came from something other than the door, such as a login page or a wrong URL, or from a door that needs an update';

const pause = (seconds, signal) =>
  new Promise((resolve) => {
    if (signal?.aborted) return resolve(); // its event has been fired
    const timer = setTimeout(resolve, seconds * 1000);
    signal?.addEventListener('abort', () => resolve(clearTimeout(timer)), { once: true });
  });

/**
 * Return whether an answer comes from the door, which marks its answers. Captive portals, proxies and other servers may
 * answer with any status, so without the mark a 404 withdraws nothing and a 204 acknowledges nothing.
 *
 * @param {Response} answer The answer.
 * @returns {boolean} Whether it is marked.
 */
export const isFromDoor = (answer) => answer.headers.has('Hushmote-Door');

/**
 * Return the seconds that an answer asks to wait, from 0 to 3,600.
 *
 * @param {Headers} headers Its headers; Retry-After is a number of seconds or a date.
 * @returns {number} The seconds; 0 if the header is missing or is neither.
 */
export function retryAfter(headers) {
  const value = headers.get('Retry-After')?.trim() ?? '';
  const seconds = /^\d+$/.test(value) ? Number(value) : Math.ceil((Date.parse(value) - Date.now()) / 1000);
  return Math.min(Math.max(seconds || 0, 0), MAX_WAIT_S);
}

/**
 * Check that a retained message's experiment has the name in the message's topic. Otherwise it could replace another
 * experiment, and outlive its own topic.
 *
 * @param {Uint8Array} payload The retained message. The client refuses anything that is not an experiment.
 * @param {string} name The name in the topic.
 * @throws {Error} If the experiment has another name.
 */
export function checkName(payload, name) {
  const [json] = new TextDecoder().decode(payload).split('\0', 1);
  let statedName = name;
  try {
    statedName = JSON.parse(json).name;
  } catch {
    return;
  }
  if (typeof statedName === 'string' && statedName !== name) throw new Error(`its name is ${statedName}`);
}

/** The door at a URL. It does not connect before someone has opted in. */
export class Door {
  /** @type {?string} The last request's error in one line, or null. */
  error = null;
  #client;
  #request;

  /**
   * @param {Client} client A client whose fleet is set.
   * @param {string} url URL of the door, without a trailing slash.
   * @param {Object} [options]
   * @param {string} [options.token] The door's token, if it requires one.
   * @throws {TypeError} If the client has no fleet.
   */
  constructor(client, url, { token } = {}) {
    if (!client.fleet) throw new TypeError('set fleet when opening the client');
    this.#client = client;
    this.#request = (path, options = {}) => {
      const headers = { ...options.headers, ...(token && { Authorization: `Bearer ${token}` }) };
      const defaults = { cache: 'no-store', signal: AbortSignal.timeout(TIMEOUT_MS) };
      return fetch(`${url}/v1/${client.fleet}/${path}`, { ...defaults, ...options, headers });
    };
  }

  /** Return a message that the broker retains; empty if it retains none, which in an open fleet withdraws an experiment. */
  async #retained(path) {
    const answer = await this.#request(path);
    if (!isFromDoor(answer)) throw new Error(`the answer ${answer.status} ${NOT_A_DOOR}`);
    if (answer.status === 404) return new Uint8Array();
    if (answer.status !== 200) throw new Error(`the door answered ${answer.status}`);
    const payload = new Uint8Array(await answer.arrayBuffer());
    if (!payload.length) throw new Error('the door answered nothing');
    return payload;
  }

  /**
   * Take part in the experiments with these names, except those that the application has withdrawn. The client's
   * status() shows those that it refused; `error` shows the last failed request. Only the door's own answer ends an
   * experiment: one that comes from a captive portal or a wrong URL changes nothing.
   *
   * @param {string[]} names Names of experiments.
   * @returns {Promise<void>}
   */
  async enroll(names) {
    this.error = null;
    for (const name of names) {
      if (!this.#client.consent) return;
      try {
        const payload = await this.#retained(`experiment/${name}`); // without one, a keyed fleet's client refuses
        if (!payload[0]) await this.#client.withdraw(name, payload);
        else if (!this.#client.ended.has(name)) {
          checkName(payload, name);
          await this.#client.enroll(payload, this.#client.log ? await this.#retained(`proof/${name}`) : undefined);
        }
      } catch (e) {
        this.error = `${name}: ${e.message}`;
      }
    }
  }

  /**
   * Send the unsent reports, oldest first.
   *
   * A report that is not acknowledged is kept, and the same bytes are resent after 1, 2, 4 ... 30 s, or later if the
   * door requests it.
   *
   * @param {Object} [options]
   * @param {number} [options.tries=8] Number of failures after which this gives up.
   * @param {AbortSignal} [options.signal] A signal to stop early.
   * @returns {Promise<number>} Number of reports that are still unsent.
   */
  async flush({ tries = 8, signal } = {}) {
    for (let failures = 0; ;) {
      const [report, ...more] = await this.#client.unsent();
      if (!report) return 0;
      if (failures >= tries || signal?.aborted) return 1 + more.length;
      let wait = Math.min(2 ** failures, 30);
      try {
        const headers = { 'Content-Type': 'application/octet-stream' };
        const answer = await this.#request(`report/${this.#client.deviceId}`, {
          method: 'POST',
          body: report,
          keepalive: true,
          headers,
        });
        if (answer.status === 204 && isFromDoor(answer)) {
          await this.#client.sent(report);
          this.error = null;
          continue;
        }
        wait = Math.max(wait, retryAfter(answer.headers));
        this.error = isFromDoor(answer) ? `${answer.status}: ${(await answer.text()).trim()}` : `the answer ${answer.status} ${NOT_A_DOOR}`;
      } catch (e) {
        this.error = e.message;
      }
      if (++failures < tries) await pause(wait, signal);
    }
  }
}
