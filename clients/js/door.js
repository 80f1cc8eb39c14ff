/** @file Access to the broker through `hushmote door`: receive experiments, send reports until acknowledged. */

const PATIENCE_MS = 10_000; // longer than a door waits for its broker

const pause = (seconds, signal) =>
  new Promise((resolve) => {
    const timer = setTimeout(resolve, seconds * 1000);
    signal?.addEventListener('abort', () => resolve(clearTimeout(timer)), { once: true });
  });

/** The door at a URL. It opens no connection before someone has opted in. */
export class Door {
  /** @type {?string} Error of the last request, in one line, or null. */
  error = null;
  #client;
  #ask;

  /**
   * @param {Client} client A client with the name of its fleet.
   * @param {string} url URL of the door, without a trailing slash.
   * @param {Object} [options]
   * @param {string} [options.token] The door's token, if it requires one.
   * @throws {TypeError} If the client has no fleet.
   */
  constructor(client, url, { token } = {}) {
    if (!client.fleet) throw new TypeError('open the client with the name of its fleet');
    this.#client = client;
    this.#ask = (path, options = {}) => {
      const headers = { ...options.headers, ...(token && { Authorization: `Bearer ${token}` }) };
      const own = { cache: 'no-store', signal: AbortSignal.timeout(PATIENCE_MS) };
      return fetch(`${url}/v1/${client.fleet}/${path}`, { ...own, ...options, headers });
    };
  }

  /**
   * Take part in the experiments with these names. The client's status() shows those it refused, `error` the last
   * failed request.
   *
   * @param {string[]} names Names of experiments.
   * @returns {Promise<void>}
   */
  async enroll(names) {
    this.error = null;
    for (const name of names) {
      if (!this.#client.consent) return;
      try {
        const answer = await this.#ask(`experiment/${name}`);
        const none = answer.status === 404; // a withdrawal in an open fleet; in a keyed one the client refuses it
        if (!answer.ok && !none) throw new Error(`the door answered ${answer.status}`);
        const payload = none ? new Uint8Array() : new Uint8Array(await answer.arrayBuffer());
        await (payload[0] ? this.#client.enroll(payload) : this.#client.withdraw(name, payload));
      } catch (e) {
        this.error = `${name}: ${e.message}`;
      }
    }
  }

  /**
   * Send the unsent reports, oldest first.
   *
   * A report that is not acknowledged stays, and the same bytes are sent again after 1, 2, 4 ... 30 s, or later if the
   * door asks for that.
   *
   * @param {Object} [options]
   * @param {number} [options.tries=8] Number of failures after which it gives up.
   * @param {AbortSignal} [options.signal] Signal that ends it.
   * @returns {Promise<number>} Number of reports that still wait.
   */
  async flush({ tries = 8, signal } = {}) {
    for (let failures = 0; ;) {
      const [report, ...more] = await this.#client.unsent();
      if (!report) return 0;
      if (failures >= tries || signal?.aborted) return 1 + more.length;
      let wait = Math.min(2 ** failures, 30);
      try {
        const headers = { 'Content-Type': 'application/octet-stream' };
        const answer = await this.#ask(`report/${this.#client.deviceId}`, {
          method: 'POST',
          body: report,
          keepalive: true,
          headers,
        });
        if (answer.status === 204) {
          await this.#client.sent(report);
          this.error = null;
          continue;
        }
        wait = Math.max(wait, Number(answer.headers.get('Retry-After')) || 0);
        this.error = `${answer.status}: ${(await answer.text()).trim()}`;
      } catch (e) {
        this.error = e.message;
      }
      if (++failures < tries) await pause(wait, signal);
    }
  }
}
