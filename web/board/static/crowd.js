// Many simulated boards, with simulated readings but real randomness from the browser.
import { NotSent, backoff, pause } from './door.js';
import { plainNumber } from './input.js';
import { fromHex, randomBytes, toHex } from './port.js';

const MAX_REQUESTS = 6; // concurrent requests; browsers open at most this many connections to one server
const BATCH = 5; // boards made before yielding to the event loop, which is the only time the garbage collector runs

const uniform = () => new DataView(randomBytes(4).buffer).getUint32(0) / 2 ** 32;
const normal = () => Math.sqrt(-2 * Math.log(1 - uniform())) * Math.cos(2 * Math.PI * uniform());

/** Return the populations for the experiment's type: name -> [words, draw(mine)].
 *
 * draw() returns a simulated reading; mine() returns the page's reading.
 */
export function populations(exp) {
  if (exp.type === 'number') {
    const [low, width] = [exp.low / 1000, (exp.high - exp.low) / 1000];
    const within = (x) => Math.min(Math.max(x, 0), 1) * width + low;
    return {
      bell: ['a bell curve around the middle', () => within(0.5 + 0.15 * normal())],
      groups: ['two groups', () => within((uniform() < 0.6 ? 0.3 : 0.75) + 0.07 * normal())],
      uniform: ['evenly spread', () => within(uniform())],
      mine: ['all the same as mine', (mine) => mine()],
      own: ['my own list', null],
    };
  }
  const values = exp.type === 'bool' ? [false, true] : exp.labels;
  const any = () => values[Math.floor(uniform() * values.length)];
  return {
    most: ['7 in 10 the same as mine, the rest evenly spread', (mine) => (uniform() < 0.7 ? mine() : any())],
    uniform: ['evenly spread', any],
    mine: ['all the same as mine', (mine) => mine()],
    own: [exp.type === 'bool' ? 'my own list (yes, no)' : 'my own list', null],
  };
}

/** Return the readings in a text, or throw TypeError; the separators are ; and line breaks, and commas if there is no ; */
export function readings(exp, text) {
  const comma = text.includes(';') ? '' : ','; // if the text has a ; then a comma is a decimal sign
  const separator = new RegExp(exp.type === 'number' ? `[\\s;${comma}]+` : `[\\n;${comma}]+`);
  const parts = text.split(separator).map((x) => x.trim()).filter(Boolean);
  if (!parts.length) throw new TypeError('Type at least one reading.');
  return parts.map((part) => {
    if (exp.type === 'choice') return part;
    if (exp.type === 'number') return plainNumber(part);
    const reading = { yes: true, no: false, 1: true, 0: false }[part.toLowerCase()];
    if (reading === undefined) throw new TypeError(`“${part}” is not a reading. Type yes or no.`);
    return reading;
  });
}

export const newDevice = () => `web-${toHex(randomBytes(6))}`;

/** Create `boardCount` boards and send one report from each.
 *
 * @param source returns the next reading
 * @param to the result of door() or examples()
 * @param onAcknowledged called with (index, hex) for each acknowledged report
 * @param onProgress called with {made, sent, waiting}; waiting is an error message while the door or broker rejects reports
 */
export async function send({ call, payloadHex, boardCount, source, to, onAcknowledged, onProgress, signal }) {
  const progress = { made: 0, sent: 0, silent: 0, waiting: null };
  async function post(board) {
    for (let n = 0; ; n++) {
      try {
        await to.post(board.device, fromHex(board.report), signal);
        break;
      } catch (error) {
        if (!(error instanceof NotSent)) throw error;
        progress.waiting = error.message;
        onProgress(progress);
        await pause(backoff(n, error), signal);
      }
    }
    progress.sent++;
    progress.waiting = null;
    onAcknowledged(board.index, board.report);
    onProgress(progress);
  }
  const requests = new Set();
  while (progress.made < boardCount) {
    const board = { device: newDevice() };
    Object.assign(board, call('crowd', board.device, payloadHex, source()));
    progress.made++;
    if (board.report) {
      while (requests.size >= MAX_REQUESTS) await Promise.race(requests);
      const request = post(board).finally(() => requests.delete(request));
      request.catch(() => {}); // Promise.race() or Promise.all() handles the error, whichever runs first
      requests.add(request);
    } else {
      progress.silent++;
    }
    if (progress.made % BATCH === 0) await pause(0, signal);
  }
  await Promise.all(requests);
  return progress;
}
