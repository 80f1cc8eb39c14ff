// Runs device/ldp_client.py, unchanged, on MicroPython's WebAssembly port; bridge.py is the interface.
// The optional mechanisms and types in device/, all of which are loaded.
const FURTHER = ['ldp_pairs.py', 'ldp_pgr.py', 'ldp_prefix.py', 'ldp_scale.py', 'ldp_sw.py', 'ldp_text.py'];
const VECTORS = ['vectors.json', 'vectors_further.json'];
// consent.py defines which questions a consent covers; it imports the other two.
const CONSENT = ['consent.py', 'reporter_base.py', 'kept_experiments.py'];
const FILES = ['ldp_client.py', 'ldp_p256.py', ...FURTHER, 'preview.py', ...CONSENT, 'check_vectors.py', ...VECTORS, 'bridge.py'];
const CHUNK = 65536; // limit of getRandomValues

export function randomBytes(n) {
  const bytes = new Uint8Array(n);
  for (let at = 0; at < n; at += CHUNK) crypto.getRandomValues(bytes.subarray(at, at + CHUNK));
  return bytes;
}

export const toHex = (bytes) => Array.from(bytes, (b) => b.toString(16).padStart(2, '0')).join('');
export const fromHex = (hex) => Uint8Array.from(hex.match(/../g) ?? [], (pair) => parseInt(pair, 16));

/** An experiment, a ledger or a browser feature that the board rejects. */
export class BoardError extends Error {
  constructor(text, kind) {
    super(text);
    this.kind = kind;
  }
}

/** Return localStorage under a prefix; if the browser denies access, read() returns "!" and write() returns false. */
export function localSlots(prefix) {
  return {
    read(name) {
      try {
        return localStorage.getItem(prefix + name) ?? '';
      } catch {
        return '!';
      }
    },
    write(name, text) {
      try {
        localStorage.setItem(prefix + name, text);
        return true;
      } catch {
        return false;
      }
    },
  };
}

/** Mirror the storage of localSlots() in IndexedDB; return save(), which resolves once the data is on disk.
 *
 * A browser writes localStorage to disk some seconds late, and loses the last writes if it is killed. If IndexedDB has
 * a ledger with a higher number, that ledger is restored. Call save() before sending a report, so that no debit is lost.
 */
export async function mirrorOnDisk(prefix, storage) {
  const names = ['slot0', 'slot1', 'board'];
  const now = () => names.map((name) => storage.read(name));
  const number = (texts) => Math.max(...texts.slice(0, 2).map((hex) => parseInt(hex.slice(4, 12) || '0', 16)));
  const refused = () => new BoardError('This browser cannot store data on disk for this page. A board that cannot keep its budget stays silent.', 'Storage');
  const database = await new Promise((resolve, reject) => {
    const open = indexedDB.open(prefix, 1);
    open.onupgradeneeded = () => open.result.createObjectStore('kept');
    open.onsuccess = () => resolve(open.result);
    open.onerror = reject;
  }).catch(() => {
    throw refused();
  });
  const run = (mode, ask) =>
    new Promise((resolve, reject) => {
      const transaction = database.transaction('kept', mode, { durability: 'strict' });
      const request = ask(transaction.objectStore('kept'));
      transaction.oncomplete = () => resolve(request.result);
      transaction.onabort = reject;
    }).catch(() => {
      throw refused();
    });
  let saved = await run('readonly', (store) => store.get('texts'));
  if (saved && number(saved) > number(now())) names.forEach((name, i) => storage.write(name, saved[i]));
  return async () => {
    const texts = now();
    if (String(texts) === String(saved)) return;
    await run('readwrite', (store) => store.put(texts, 'texts'));
    saved = texts;
  };
}

/** Resolve once this tab holds a named lock, which it never releases; call onWait() if another tab holds the lock. */
export async function acquireLock(name, onWait) {
  const request = (options) =>
    new Promise((resolve, reject) => {
      const hold = (lock) => {
        resolve(lock);
        return lock && new Promise(() => {});
      };
      navigator.locks.request(name, options, hold).catch(reject);
    });
  try {
    if (await request({ ifAvailable: true })) return;
    onWait();
    await request({});
  } catch {
    throw new BoardError('This browser does not offer Web Locks to this page. Without them, two tabs could spend one budget twice, so the board does not start. Try a newer browser, over HTTPS or at localhost.');
  }
}

/** Start MicroPython; return a function call(name, ...arguments) into bridge.py. storage is the result of localSlots(). */
export async function boot(storage) {
  if (typeof crypto === 'undefined' || !crypto.getRandomValues) {
    throw new BoardError('This browser has no crypto.getRandomValues. Without secure randomness, the board does not start.');
  }
  const missing = () => {
    throw new BoardError('MicroPython for browsers is not on this server; run “make page” to fetch it.');
  };
  const { loadMicroPython } = await import('./micropython/micropython.mjs').catch(missing);
  const [python, ...texts] = await Promise.all([
    loadMicroPython({ heapsize: 4 << 20 }),
    ...FILES.map(async (file) => {
      const response = await fetch(new URL(file, import.meta.url));
      if (!response.ok) throw new BoardError(`${file} is not on this server.`);
      return new Uint8Array(await response.arrayBuffer());
    }),
  ]);
  FILES.forEach((file, i) => python.FS.writeFile(`/${file}`, texts[i]));
  python.registerJsModule('browser', {
    random: (n) => toHex(randomBytes(n)),
    read: (slot) => storage.read(`slot${slot}`),
    write: (slot, hex) => storage.write(`slot${slot}`, hex),
  });
  const bridge = python.pyimport('bridge').call;
  return (...request) => {
    const answer = JSON.parse(bridge(JSON.stringify(request)));
    if ('error' in answer) throw new BoardError(answer.error, answer.kind);
    return answer.value;
  };
}
