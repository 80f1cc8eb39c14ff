// Consent of the person at this browser. Until someone consents, the board is silent.
import { newDevice } from './crowd.js';
import { BoardError } from './port.js';
import { element } from './words.js';

const $ = (id) => document.getElementById(id);
const STOP = 'You can change your answer at any time.';
const FETCHED = 'This page has fetched the question to show it to you, but has sent nothing, neither a reading nor the board’s name.';
const WORDS = {
  open: ['Will you take part?', `Nobody has agreed yet, so this board is silent. ${FETCHED} If you agree, it reports a reading each time you press the button, and at no other time. ${STOP}`],
  changed: ['Will you also take part in this?', `You said yes to an earlier version of this question. This version asks something else or protects each report less. ${FETCHED} Until you agree to it, the board is silent here. If you say no, the board stops reporting for all questions. ${STOP}`],
  other: ['Will you take part in this, too?', `You said yes to another question, not to this one. ${FETCHED} If you say no, the board stops reporting for all questions. ${STOP}`],
  yes: ['You take part', 'You said yes. The board reports a reading each time you press the button below, and at no other time. If you stop, it drops unsent reports and sends nothing more. Reports that were already sent cannot be withdrawn.'],
  no: ['You do not take part', `You said no. This board is silent and has dropped all unsent reports. ${STOP}`],
};

const validTexts = (list) => (Array.isArray(list) && list.every((x) => typeof x === 'string') ? list : []);

/** Return the questions with consent, by name, or {} if an older page stored only names. */
const validQuestions = (yes) => (yes && !Array.isArray(yes) && Object.values(yes).every((x) => /^[0-9a-f]{24}$/.test(x)) ? yes : {});

/** Return the record stored alongside the ledger, or null: id, yes (questions by name), last (reports in words). */
function readRecord(storage) {
  try {
    const { id, yes, last } = JSON.parse(storage.read('board'));
    return id ? { id, yes: validQuestions(yes), last: validTexts(last) } : null;
  } catch {
    return null;
  }
}

const writeRecord = (storage, record) => storage.write('board', JSON.stringify(record));

/** Power on for a question; provision a new board, without any consent, if the browser stores none. */
export function powerOn(board, name) {
  let record = readRecord(board.storage);
  if (!record) {
    board.call('provision', false);
    record = { id: newDevice(), yes: {}, last: [] };
  }
  if (!writeRecord(board.storage, record)) throw new BoardError('storage failed');
  board.state = board.call('start', record.id, record.yes, name, record.last);
}

/** Create a new ledger and a new id, without any consent. */
export function replace(board) {
  board.call('provision', true);
  writeRecord(board.storage, { id: newDevice(), yes: {}, last: [] });
}

/** Store the board's last reports, to show them after a reload. */
export const storeLastReports = ({ storage, state: { device, agreed, last } }) => writeRecord(storage, { id: device, yes: agreed, last });

/** Return whether someone has consented to the question on display. */
export const takesPart = ({ state, exp }) => state.yes.includes(exp.name);

/** Record an answer. A yes takes effect once it is stored; a no takes effect at once, even if storing it fails. */
export function answer(board, yes) {
  const { device: id, last, agreed } = board.state;
  const questions = yes ? { ...agreed, [board.exp.name]: board.exp.question } : {};
  if (!writeRecord(board.storage, { id, yes: questions, last }) && yes) throw new BoardError('storage failed');
  board.state = board.call('answer', questions);
}

export function showConsent(board) {
  const { state, exp } = board;
  const hasOthers = Object.keys(state.agreed).length > 0;
  const unanswered = Object.hasOwn(state.agreed, exp.name) ? 'changed' : hasOthers ? 'other' : 'open';
  const status = takesPart(board) ? 'yes' : state.consent === false ? 'no' : unanswered;
  const [title, words] = WORDS[status];
  if ($('consent-words').textContent !== words) $('consent-words').textContent = words;
  $('consent-title').textContent = title;
  $('yes').hidden = status === 'yes';
  $('no').hidden = status === 'no';
  $('no').textContent = status === 'yes' ? 'Stop taking part' : 'No';
  $('last').replaceChildren(...state.last.toReversed().map((line) => element('li', {}, line)));
  $('last-none').hidden = state.last.length > 0;
}
