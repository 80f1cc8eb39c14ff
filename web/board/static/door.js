// The destination of reports: the broker through the HTTP door or, without one, a count in this browser.

const TIMEOUT_MS = 8000; // longer than a door waits for its broker

/** A missing or unsuccessful response; wait: seconds until the next attempt. */
export class NotSent extends Error {
  constructor(text, wait = 0) {
    super(text);
    this.wait = wait;
  }
}

/** Return the whole response {status, headers, text, bytes}; throw NotSent if it does not arrive in time. */
async function ask(url, { signal, ...options } = {}) {
  const timeout = AbortSignal.timeout(TIMEOUT_MS);
  try {
    const response = await fetch(url, { cache: 'no-store', ...options, signal: signal ? AbortSignal.any([signal, timeout]) : timeout });
    const bytes = new Uint8Array(await response.arrayBuffer());
    return { status: response.status, headers: response.headers, bytes, text: new TextDecoder().decode(bytes) };
  } catch {
    if (signal?.aborted) throw signal.reason;
    throw new NotSent('The door does not answer.');
  }
}

function json({ status, text }, url) {
  if (status !== 200) throw new NotSent(`${url} answered ${status}`);
  try {
    return JSON.parse(text);
  } catch {
    throw new NotSent(`${url} did not answer with JSON`);
  }
}

/** Return the door at a path, with experiments() -> names, payload(name), post(device, bytes, signal) and result(name). */
export function door({ fleet, door: path, result }) {
  const base = `${path}/${fleet}`;
  return {
    broker: true,
    async experiments() {
      const url = `${base}/experiment`;
      const answer = json(await ask(url), url);
      return Array.isArray(answer) ? answer : answer.experiments;
    },
    async payload(name) {
      const { status, bytes } = await ask(`${base}/experiment/${encodeURIComponent(name)}`);
      if (status !== 200) throw new NotSent(`The door has no experiment ${name}.`);
      return bytes;
    },
    async post(device, body, signal) {
      const options = { method: 'POST', body, headers: { 'Content-Type': 'application/octet-stream' }, signal };
      const { status, headers, text } = await ask(`${base}/report/${device}`, options);
      if (!headers.has('Hushmote-Door')) {
        throw new NotSent(`The answer ${status} came from something other than the door, or from a door that needs an update.`);
      }
      if (status === 204) return;
      const reason = text.split(/[;\n]/)[0] || `status ${status}`;
      throw new NotSent(`The door rejected the report: ${reason}.`, retryAfter(headers));
    },
    /** Return the published result, or null if none is published; throw NotSent if the server does not answer. */
    async result(name) {
      const url = result ? `${result}/${fleet}/${name}.json` : `${base}/result/${name}`;
      const answer = await ask(url);
      return answer.status === 404 ? null : json(answer, url);
    },
  };
}

/** Return the experiments in examples.json, with the methods of a door but without a broker. */
export function examples(list) {
  return {
    broker: false,
    experiments: async () => list.map(({ payload }) => JSON.parse(payload).name),
    payload: async (name) =>
      new TextEncoder().encode(list.find(({ payload }) => JSON.parse(payload).name === name).payload),
    post: async () => {},
    result: async () => null,
  };
}

/** Return the seconds, at most an hour, in Retry-After, which is a number or a date; 0 if it is missing or neither. */
function retryAfter(headers) {
  const value = headers.get('Retry-After')?.trim() ?? '';
  const seconds = /^\d+$/.test(value) ? Number(value) : Math.ceil((Date.parse(value) - Date.now()) / 1000);
  return Math.min(Math.max(seconds || 0, 0), 3600);
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

/** Return the delay in seconds after attempt n (0, 1, ...), which is 1, 2, 4, ... 30, but at least the door's Retry-After. */
export const backoff = (n, error) => Math.max(Math.min(2 ** n, 30), error.wait ?? 0);
