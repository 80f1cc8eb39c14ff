// Many boards: their readings are simulated, their randomness is the browser's own.
import { NotSent, backoff, pause } from './door.js';
import { plainNumber } from './input.js';
import { fromHex, randomBytes, toHex } from './port.js';

const AT_ONCE = 6; // concurrent requests: as many as browsers open to one server
const BATCH = 5; // boards between two turns of the event loop, because the garbage collector runs only there

const uniform = () => new DataView(randomBytes(4).buffer).getUint32(0) / 2 ** 32;
const normal = () => Math.sqrt(-2 * Math.log(1 - uniform())) * Math.cos(2 * Math.PI * uniform());

/** Return name -> [words, draw(mine)] for the experiment's type; draw returns a reading, mine() this page's own. */
export function populations(exp) {
  if (exp.type === 'number') {
    const [low, width] = [exp.low / 1000, (exp.high - exp.low) / 1000];
    const within = (x) => Math.min(Math.max(x, 0), 1) * width + low;
    return {
      bell: ['a bell around the middle', () => within(0.5 + 0.15 * normal())],
      groups: ['two groups', () => within((uniform() < 0.6 ? 0.3 : 0.75) + 0.07 * normal())],
      uniform: ['evenly spread', () => within(uniform())],
      mine: ['everyone at my reading', (mine) => mine()],
      own: ['numbers of my own', null],
    };
  }
  const values = exp.type === 'bool' ? [false, true] : exp.labels;
  const any = () => values[Math.floor(uniform() * values.length)];
  return {
    most: ['7 in 10 as mine, others evenly', (mine) => (uniform() < 0.7 ? mine() : any())],
    uniform: ['evenly spread', any],
    mine: ['all as mine', (mine) => mine()],
    own: [exp.type === 'bool' ? 'a list of my own (yes, no)' : 'a list of my own', null],
  };
}

/** Return the readings in a text, separated by ; or line breaks, or by commas if it has no ; – or throw TypeError. */
export function readings(exp, text) {
  const comma = text.includes(';') ? '' : ','; // otherwise a comma is a decimal sign
  const between = new RegExp(exp.type === 'number' ? `[\\s;${comma}]+` : `[\\n;${comma}]+`);
  const parts = text.split(between).map((x) => x.trim()).filter(Boolean);
  if (!parts.length) throw new TypeError('Type at least one reading.');
  return parts.map((part) => {
    if (exp.type === 'choice') return part;
    if (exp.type === 'number') return plainNumber(part);
    const known = { yes: true, no: false, 1: true, 0: false }[part.toLowerCase()];
    if (known === undefined) throw new TypeError(`“${part}” is not a reading. Type yes or no.`);
    return known;
  });
}

export const newDevice = () => `web-${toHex(randomBytes(6))}`;

/** Make `many` boards and send one report from each.
 *
 * @param source returns the next reading
 * @param to the result of door() or examples()
 * @param each called with (index, hex) for each acknowledged report
 * @param progress called with {made, sent, waiting}; waiting is a text while the door or broker keeps them waiting
 */
export async function send({ call, payloadHex, many, source, to, each, progress, signal }) {
  const at = { made: 0, sent: 0, silent: 0, waiting: null };
  async function post(board) {
    for (let n = 0; ; n++) {
      try {
        await to.post(board.device, fromHex(board.report), signal);
        break;
      } catch (error) {
        if (!(error instanceof NotSent)) throw error;
        at.waiting = error.message;
        progress(at);
        await pause(backoff(n, error), signal);
      }
    }
    at.sent++;
    at.waiting = null;
    each(board.index, board.report);
    progress(at);
  }
  const underWay = new Set();
  while (at.made < many) {
    const board = { device: newDevice() };
    Object.assign(board, call('crowd', board.device, payloadHex, source()));
    at.made++;
    if (board.report) {
      while (underWay.size >= AT_ONCE) await Promise.race(underWay);
      const one = post(board).finally(() => underWay.delete(one));
      one.catch(() => {}); // race() or all() handles it, whichever comes first
      underWay.add(one);
    } else {
      at.silent++;
    }
    if (at.made % BATCH === 0) await pause(0, signal);
  }
  await Promise.all(underWay);
  return at;
}
