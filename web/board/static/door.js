// Where reports go: through the HTTP door to the broker, or, without one, into a count in this browser.

/** An answer that is not an acknowledgement; wait: seconds until it may be tried again. */
export class NotSent extends Error {
  constructor(text, wait = 0) {
    super(text);
    this.wait = wait;
  }
}

async function json(url) {
  const response = await fetch(url, { cache: 'no-store' });
  if (!response.ok) throw new NotSent(`${url} answered ${response.status}`);
  return response.json();
}

/** The door at a path: experiments() -> names, payload(name), post(device, bytes, signal), result(name). */
export function door({ fleet, door: path, result }) {
  const base = `${path}/${fleet}`;
  return {
    broker: true,
    async experiments() {
      const answer = await json(`${base}/experiment`);
      return Array.isArray(answer) ? answer : answer.experiments;
    },
    async payload(name) {
      const response = await fetch(`${base}/experiment/${encodeURIComponent(name)}`, { cache: 'no-store' });
      if (!response.ok) throw new NotSent(`The door has no experiment ${name}.`);
      return new Uint8Array(await response.arrayBuffer());
    },
    async post(device, bytes, signal) {
      let response;
      try {
        const headers = { 'Content-Type': 'application/octet-stream' };
        response = await fetch(`${base}/report/${device}`, { method: 'POST', body: bytes, headers, signal });
      } catch (error) {
        if (error.name === 'AbortError') throw error;
        throw new NotSent('The door does not answer.');
      }
      if (response.status === 204) return;
      const why = (await response.text()).split(/[;\n]/)[0] || `status ${response.status}`;
      throw new NotSent(`The door says: ${why}.`, Number(response.headers.get('Retry-After')) || 0);
    },
    async result(name) {
      try {
        return await json(result ? `${result}/${fleet}/${name}.json` : `${base}/result/${name}`);
      } catch {
        return null; // none yet, or nobody publishes them
      }
    },
  };
}

/** The examples beside this file, without a broker; texts: what examples.json holds. */
export function examples(texts) {
  return {
    broker: false,
    experiments: async () => texts.map(({ payload }) => JSON.parse(payload).name),
    payload: async (name) =>
      new TextEncoder().encode(texts.find(({ payload }) => JSON.parse(payload).name === name).payload),
    post: async () => {},
    result: async () => null,
  };
}

export function pause(seconds, signal) {
  return new Promise((resolve, reject) => {
    const stop = () => {
      clearTimeout(timer);
      reject(signal.reason);
    };
    const timer = setTimeout(() => {
      signal?.removeEventListener('abort', stop);
      resolve();
    }, seconds * 1000);
    if (signal?.aborted) stop();
    signal?.addEventListener('abort', stop, { once: true });
  });
}

/** Seconds before try number n (0, 1, ...): 1, 2, 4, ... 30, and no sooner than the door asked for. */
export const backoff = (n, error) => Math.max(Math.min(2 ** n, 30), error.wait ?? 0);
