// Where reports go: through the HTTP door to the broker, or, without one, into a count in this browser.

const PATIENCE_MS = 8000; // longer than a door waits for its broker

/** An answer that is not an acknowledgement; wait: seconds until it may be tried again. */
export class NotSent extends Error {
  constructor(text, wait = 0) {
    super(text);
    this.wait = wait;
  }
}

/** The whole answer {status, headers, text, bytes}; NotSent where there is none in time. */
async function ask(url, { signal, ...options } = {}) {
  const patience = AbortSignal.timeout(PATIENCE_MS);
  try {
    const response = await fetch(url, { cache: 'no-store', ...options, signal: signal ? AbortSignal.any([signal, patience]) : patience });
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
    throw new NotSent(`${url} answered no JSON`);
  }
}

/** The door at a path: experiments() -> names, payload(name), post(device, bytes, signal), result(name). */
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
      const sent = { method: 'POST', body, headers: { 'Content-Type': 'application/octet-stream' }, signal };
      const { status, headers, text } = await ask(`${base}/report/${device}`, sent);
      if (status === 204) return;
      const why = text.split(/[;\n]/)[0] || `status ${status}`;
      throw new NotSent(`The door says: ${why}.`, Number(headers.get('Retry-After')) || 0);
    },
    /** The published result, null where none is published; NotSent where nobody answers. */
    async result(name) {
      const url = result ? `${result}/${fleet}/${name}.json` : `${base}/result/${name}`;
      const answer = await ask(url);
      return answer.status === 404 ? null : json(answer, url);
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
