// The first question: whether the person at this browser consents. Until then the board is silent.
import { newDevice } from './crowd.js';
import { BoardError } from './port.js';
import { element } from './words.js';

const $ = (id) => document.getElementById(id);
const STOP = 'You can change your answer at any time.';
const FETCHED = 'To show you the question, this page has fetched it. It has sent nothing: no reading, and not the board’s name.';
const WORDS = {
  open: ['Will you take part?', `Nobody has said yes yet, so this board is silent. ${FETCHED} With a yes, it reports a reading each time you press the button, and at no other time. ${STOP}`],
  changed: ['Will you take part in this as well?', `You said yes to an earlier version of this question. This one asks something else, or protects each report less. ${FETCHED} Until a yes to it, the board is silent here. A no silences the board for all questions. ${STOP}`],
  other: ['Will you take part in this, too?', `You said yes to another question, not to this one. ${FETCHED} A no silences the board for all questions. ${STOP}`],
  yes: ['You take part', 'You said yes. The board reports a reading each time you press the button below, and at no other time. If you stop, it drops reports that still wait and says nothing more. What was sent before cannot be called back.'],
  no: ['You do not take part', `You said no. This board is silent, and has dropped every report that waited. ${STOP}`],
};

const texts = (list) => (Array.isArray(list) && list.every((x) => typeof x === 'string') ? list : []);

/** Return name -> question with consent; empty for a page that stored only names. */
const questions = (yes) => (yes && !Array.isArray(yes) && Object.values(yes).every((x) => /^[0-9a-f]{24}$/.test(x)) ? yes : {});

/** Return what the browser stores beside the ledger: id, yes (by name), last (reports in words); or null. */
function identity(storage) {
  try {
    const { id, yes, last } = JSON.parse(storage.read('board'));
    return id ? { id, yes: questions(yes), last: texts(last) } : null;
  } catch {
    return null;
  }
}

const keep = (storage, known) => storage.write('board', JSON.stringify(known));

/** Power on for a question; a new board is provisioned, without any consent. */
export function powerOn(board, name) {
  let known = identity(board.storage);
  if (!known) {
    board.call('provision', false);
    known = { id: newDevice(), yes: {}, last: [] };
  }
  if (!keep(board.storage, known)) throw new BoardError('storage failed');
  board.state = board.call('start', known.id, known.yes, name, known.last);
}

/** Make a new ledger and a new id, without any consent. */
export function replace(board) {
  board.call('provision', true);
  keep(board.storage, { id: newDevice(), yes: {}, last: [] });
}

/** Store the board's reports, so that they can be shown after a reload. */
export const keepLast = ({ storage, state: { device, agreed, last } }) => keep(storage, { id: device, yes: agreed, last });

/** Return whether there is consent to the question that is shown. */
export const takesPart = ({ state, exp }) => state.yes.includes(exp.name);

/** Record an answer. A yes is valid once it is stored; a no at once, even if storing it fails. */
export function answer(board, yes) {
  const { device: id, last, agreed } = board.state;
  const now = yes ? { ...agreed, [board.exp.name]: board.exp.question } : {};
  if (!keep(board.storage, { id, yes: now, last }) && yes) throw new BoardError('storage failed');
  board.state = board.call('answer', now);
}

export function showConsent(board) {
  const { state, exp } = board;
  const others = Object.keys(state.agreed).length > 0;
  const asked = Object.hasOwn(state.agreed, exp.name) ? 'changed' : others ? 'other' : 'open';
  const now = takesPart(board) ? 'yes' : state.consent === false ? 'no' : asked;
  const [title, words] = WORDS[now];
  if ($('consent-words').textContent !== words) $('consent-words').textContent = words;
  $('consent-title').textContent = title;
  $('yes').hidden = now === 'yes';
  $('no').hidden = now === 'no';
  $('no').textContent = now === 'yes' ? 'Stop taking part' : 'No';
  $('last').replaceChildren(...state.last.toReversed().map((line) => element('li', {}, line)));
  $('last-none').hidden = state.last.length > 0;
}
