// The page, with one board, its experiment and budget, and many simulated boards.
import { answer, storeLastReports, powerOn, replace, showConsent, takesPart } from './consent.js';
import { NotSent, backoff, door, examples, pause } from './door.js';
import { readingInput } from './input.js';
import { fillPopulations, sendMany } from './many.js';
import { BoardError, acquireLock, boot, fromHex, localSlots, mirrorOnDisk, toHex } from './port.js';
import { makeView } from './view.js';
import { belief, codeMeaning, codeOf, element, facts, indexName, nats, number, reportParts, reports } from './words.js';

const $ = (id) => document.getElementById(id);
const MAX_UNSENT = 16;
const NEW_BOARD =
  'A new board has a new id and an empty ledger. It starts a new privacy bound, so whatever the old board has revealed adds to whatever the new one reveals. Unsent reports are lost.';

/** The page's state: call (the port's function), storage, to (door or examples), about (texts by experiment name). */
export const board = { call: null, state: null, exp: null, view: null, input: null };
let sending = false;
let stop = new AbortController(); // cancels requests to the door
let unconfirmed = null; // a reading outside the bounds, which needs a second press of the button
const indices = new Map(); // report -> index of its reading, from which the view computes the true shares

const json = async (file) => {
  const response = await fetch(new URL(file, import.meta.url), { cache: 'no-store' });
  return response.ok ? response.json() : null;
};

/** Set the colours from ?theme=, otherwise from the surrounding page's stored choice, otherwise from the system. */
function theme() {
  const choice = new URLSearchParams(location.search).get('theme') ?? localSlots('').read('hushmote-colours');
  if (choice === 'dark' || choice === 'light') document.documentElement.dataset.theme = choice;
}

function showProblem(text, offersNewBoard = false) {
  $('problem').hidden = !text;
  $('problem-text').textContent = text ?? '';
  $('problem-new').hidden = !offersNewBoard;
}

const LOCKED = [
  ['another client', 'Another tab has used this board, so this one has locked itself: two clients on one ledger could spend the budget twice. Reload this page to continue with the board, or make a new one.'],
  ['no ledger', 'The browser has lost this board’s ledger. A board without a ledger does not know what it has spent, so it remains silent.'],
  ['damaged', 'This board’s ledger is damaged. A board that cannot trust its ledger stays silent.'],
  ['storage failed', 'This browser cannot store anything for this page, because its storage is blocked or full. A board that cannot keep its budget stays silent. Nothing was spent.'],
];
const lockedMessage = (text) => LOCKED.find(([part]) => text.includes(part))?.[1] ?? text;

// --- The board -------------------------------------------------------------------------------------

function newBoard() {
  if (!confirm(NEW_BOARD)) return;
  try {
    replace(board);
  } catch (error) {
    showProblem(lockedMessage(error.message), true);
    return;
  }
  $('message').textContent = 'This is a new board.';
  choose(board.name);
}

/** Show a question: fetch it, power on with its name in the policy, enroll. */
async function choose(name) {
  board.name = name;
  showProblem(null);
  for (const id of ['consent', 'measure', 'steps', 'budget', 'crowd', 'view']) $(id).hidden = true;
  const payload = await retry(() => board.to.payload(name), () => board.name === name);
  const words = board.about[name] ?? (await board.to.result(name).catch(() => null)) ?? {};
  if (!payload || board.name !== name) return; // another question was chosen in the meantime
  const end = payload.indexOf(0);
  $('purpose').textContent = words.purpose || 'The purpose of this question is not published here.';
  $('owner').textContent = board.about[name] ? 'This is only an example.' : words.owner ? `Asked by ${words.owner}.` : 'The owner of this question is not published here.';
  if (end >= 0) {
    showProblem('This fleet is keyed: its boards sign their reports, and a browser has no device key. Only open fleets can be tried here.');
    return;
  }
  board.payload = toHex(payload);
  try {
    board.exp = board.call('parse', board.payload);
    $('facts').textContent = facts(board.exp, words.unit);
    board.view = board.views[name] ??= makeView(board.exp, board.to);
    board.input = readingInput($('input'), board.exp, words.unit ?? '', words.reading, readingChanged);
    unconfirmed = null;
    fillPopulations(board.exp);
    $('until').hidden = board.exp.every === 1;
    $('view').hidden = false;
    powerOn(board, name);
    await board.save();
    if (board.state.locked) throw new BoardError(board.state.locked);
    board.state = board.call('enroll', board.payload);
    for (const id of ['consent', 'measure', 'budget']) $(id).hidden = false;
    $('leaves').textContent = `A report of ${5 + 4 + board.exp.code_bytes} bytes with one code, which was partly chosen at random. The only other thing sent is this board’s random name, ${board.state.device}.`;
    const line = board.state.experiments[name];
    const all = line.reports + line.left;
    const totalBelief = all > 1 ? ` ${belief(all * board.exp.epsilon, `All ${number(all)} reports that its budget allows`)}` : '';
    $('learn').textContent = belief(board.exp.epsilon) + totalBelief;
    showState();
    drain();
  } catch (error) {
    if (!(error instanceof BoardError)) throw error;
    if (error.kind === 'ExperimentRefused') showProblem(`This board refuses the experiment: ${error.message}.`);
    else showProblem(lockedMessage(error.kind === 'LedgerExists' ? 'damaged' : error.message), !error.message.includes('storage failed'));
  }
  await board.view?.refresh();
}

function showState() {
  const { state, exp } = board;
  const line = state.experiments[exp.name];
  const all = line.reports + line.left;
  $('meter').setAttribute('aria-valuemax', all);
  $('meter').setAttribute('aria-valuenow', line.left);
  $('meter').setAttribute('aria-valuetext', `${number(line.left)} of ${reports(all)} left`);
  $('meter-left').style.width = `${all ? (100 * line.left) / all : 0}%`;
  $('left').textContent = state.locked ? lockedMessage(state.locked)
    : line.left ? `${number(line.left)} of ${reports(all)} ${line.left === 1 ? 'is' : 'are'} left.`
    : `The budget is spent. The board is now silent for ${exp.name}; the application does not notice.`;
  const lifetime = { max: state.policy.sum, left: Math.max(state.policy.sum - state.sum, 0) };
  const words = `ε ${nats(lifetime.left)} of ${nats(lifetime.max)} is left`;
  $('lifetime').setAttribute('aria-valuemax', lifetime.max);
  $('lifetime').setAttribute('aria-valuenow', lifetime.left);
  $('lifetime').setAttribute('aria-valuetext', words);
  $('lifetime-left').style.width = `${(100 * lifetime.left) / lifetime.max}%`;
  const more = line.left && lifetime.left < exp.epsilon ? ' Further reports stay within the bound on the sum of squares instead.' : '';
  $('lifetime-text').textContent = `${words}. All its reports together have cost ε ${nats(state.sum)}.${more}`;
  $('waiting').textContent = state.pending ? `${reports(state.pending)} waiting to be sent unchanged: ${state.outbox.join(', ')}` : '';
  showConsent(board);
  $('crowd').hidden = !takesPart(board); // some populations copy this page's reading
  $('preview').textContent = previewText();
  $('policy').textContent = JSON.stringify(state.policy, null, 1);
  for (const id of ['report', 'until']) $(id).disabled = !takesPart(board) || !board.input.chosen();
  if (state.locked) showProblem(lockedMessage(state.locked), true);
}

/** Return what the current reading would send, without sending it. */
function previewText() {
  const { state, exp } = board;
  if (takesPart(board) && !state.experiments[exp.name].left) return 'Nothing, because the budget is spent.';
  try {
    return board.call('preview', board.exp.name, board.input.value());
  } catch (error) {
    if (!(error instanceof TypeError)) throw error;
    return error.message;
  }
}

function readingChanged() {
  unconfirmed = null; // each reading needs its own confirmation
  showState();
}

/** Return whether the reading can be reported; a typing error must not use up budget. */
function canReport() {
  let beyond;
  try {
    beyond = board.input.beyond();
    board.input.value();
  } catch (error) {
    if (!(error instanceof TypeError)) throw error;
    $('message').textContent = error.message;
    return false;
  }
  if (!beyond || unconfirmed === board.input.words()) return true;
  unconfirmed = board.input.words();
  $('message').textContent = `${beyond} Press again to send it.`;
  return false;
}

const wasSkipped = (now) => noReportReason(now).startsWith('The draw');

/** Return the reason why report() returned None, as far as status() reveals it. */
function noReportReason(now) {
  const { state, exp } = now;
  const line = state.experiments[exp.name];
  if (state.locked) return lockedMessage(state.locked);
  if (!takesPart(now)) return 'This board does not take part.'; // even if the no could not be stored
  if (state.error) return lockedMessage(state.error);
  if (!line.left) return 'The budget is spent.';
  if (state.pending >= MAX_UNSENT) return 'The outbox is full.';
  return `The draw skipped this reading. It is made before the board looks at the reading, and lets 1 reading in ${number(exp.every)} through.`;
}

/** Report one reading; with `repeat`, measure again until the draw of `every` lets a reading through. */
async function reportReading(repeat) {
  if (!canReport()) return;
  unconfirmed = null;
  const [exp, value] = [board.exp, board.input.value()];
  let [answer, readings] = [null, 0];
  do {
    if (readings && readings % 20 === 0) await pause(0);
    if (board.exp !== exp) return; // another question was chosen in the meantime, so this reading does not answer it
    answer = board.call('report', exp.name, value);
    board.state = answer.state;
    readings++;
  } while (repeat && !answer.report && wasSkipped(board));
  const { index, report } = answer;
  showState();
  $('steps').hidden = false;
  $('step-reading').textContent = `${board.input.words()} – it never leaves this browser`;
  $('step-index').textContent = `${number(index)} (${indexName(board.exp, index)})`;
  for (const id of ['step-code', 'step-report', 'step-debit', 'step-sent']) $(id).textContent = '–';
  if (!report) {
    $('message').textContent = `No report: report() returns None, which is all that the application sees. ${noReportReason(board)} This reading cost nothing.`;
    return;
  }
  indices.set(report, index);
  storeLastReports(board);
  const attempts = readings > 1 ? `The draw let reading number ${number(readings)} through. ` : '';
  $('message').textContent = `${attempts}One report was made. It cost ε ${nats(board.exp.epsilon)}.`;
  $('step-code').textContent = `${number(codeOf(report))}. ${codeMeaning(board.exp, codeOf(report))}`;
  const parts = reportParts(report, board.exp.code_bytes);
  $('step-report').replaceChildren(
    element('span', { class: 'parts' }, ...parts.map(([hex, what]) => element('span', {}, element('code', {}, hex), element('small', {}, what)))),
  );
  $('step-report').dataset.hex = report;
  $('step-debit').textContent = `ε ${nats(board.exp.epsilon)}, stored together with the report before anything is sent`;
  drain();
}

/** Send the outbox, oldest first, each report unchanged until it is acknowledged. */
async function drain() {
  if (sending) return;
  sending = true;
  try {
    for (let n = 0; board.state.outbox.length; ) {
      const [[report], view] = [board.state.outbox, board.view];
      const isShown = report.slice(2, 10) === view.exp.digest; // a report for the experiment on display
      try {
        if (board.to.broker) setSentText('Trying …');
        const before = isShown && board.to.broker ? await currentCount(view) : null;
        if (!board.state.outbox.includes(report)) continue; // dropped in the meantime
        await board.save(); // the debit must be stored before the report leaves
        if (!board.state.outbox.includes(report)) continue;
        await board.to.post(board.state.device, fromHex(report), stop.signal);
        board.state = board.call('sent', report);
        n = 0;
        if (isShown) view.add(indices.get(report) ?? null, report);
        if (isShown) watchCount(view, before);
      } catch (error) {
        if (!board.state.outbox.includes(report)) continue;
        if (!(error instanceof NotSent || error instanceof BoardError)) throw error;
        const wait = backoff(n++, error);
        setSentText(`Not yet. ${error.message} The same bytes will be sent again in ${number(wait)} s.`);
        showState();
        await pause(wait, stop.signal).catch(() => {});
        if (board.state.locked) return;
      }
      showState();
    }
  } finally {
    sending = false;
  }
}

function setSentText(text) {
  $('step-sent').textContent = text;
  $('steps').hidden = false;
}

/** Return the number of counted reports, or null if the server does not answer; do not wait if the last request failed. */
async function currentCount(view) {
  const result = view.silent() ? null : await view.refresh();
  return view.silent() ? null : result?.reports ?? 0;
}

/** Show that the report was acknowledged, and wait for the count to change. */
async function watchCount(view, before) {
  if (!board.to.broker) {
    await view.refresh();
    setSentText(`Counted in this browser: ${number(view.counted())} so far.`);
    return;
  }
  const say = (words) => setSentText(`Acknowledged by the broker. ${words}`);
  say('');
  for (let n = 0; n < 20; n++) {
    const now = (await view.refresh())?.reports ?? null;
    if (view.silent()) return say('The number of counted reports is not available.');
    if (now === null) return say('This server publishes no results yet.');
    if (before === null) return say(`The count is now ${number(now)}.`);
    if (now > before) return say(`The count went from ${number(before)} to ${number(now)}.`);
    await pause(Math.min(0.3 + n / 10, 1.5));
  }
  return say(`The published count is still ${number(before)}. The server may publish results only after their window has ended.`);
}

// --- The page --------------------------------------------------------------------------------------

async function checkVectors() {
  let [done, failed, end] = [0, [], false];
  $('vectors').disabled = true;
  while (!end) {
    const step = board.call('vectors', 10);
    done += step.done;
    failed = failed.concat(step.failed);
    end = step.end;
    $('vectors-message').textContent = `${number(done)} checked …`;
    await pause(0);
  }
  $('vectors').disabled = false;
  $('vectors-message').textContent = failed.length
    ? `${number(failed.length)} of ${number(done)} vectors do not agree: ${failed[0]}`
    : `${number(done)} vectors agree, bit for bit, so this board behaves like other boards and servers.`;
}

/** Return the result of ask(), repeated until the door answers, or null once the result is no longer needed. */
async function retry(ask, isNeeded = () => true) {
  for (let n = 0; isNeeded(); n++) {
    try {
      const answer = await ask();
      showProblem(null);
      return answer;
    } catch (error) {
      if (!(error instanceof NotSent || error instanceof TypeError)) throw error;
      const words = error instanceof NotSent ? error.message : 'The door does not answer.';
      showProblem(`${words} This page will ask again in ${number(backoff(n, error))} s.`);
      await pause(backoff(n, error));
    }
  }
  return null;
}

async function start() {
  theme();
  const config = await json('config.json').catch(() => null) ?? {};
  for (const field of ['door', 'result']) {
    if (config[field]) config[field] = new URL(config[field], import.meta.url).pathname;
  }
  const offline = config.door ? [] : await json('examples.json');
  board.about = Object.fromEntries(offline.map((example) => [JSON.parse(example.payload).name, example]));
  board.to = config.door ? door(config) : examples(offline);
  board.views = {};
  const ledger = `hushmote:${new URL('.', import.meta.url).pathname}:${config.fleet ?? ''}:`;
  board.storage = localSlots(ledger);
  board.call = await boot(board.storage);
  const about = board.call('about');
  $('file-hash').replaceChildren(
    'The board’s file has ', number(about.bytes), ' bytes and the SHA-256 ', element('code', { id: 'sha256' }, about.sha256),
    '. To compare, run ', element('code', {}, 'sha256sum device/ldp_client.py'), ', which prints the same hash.',
  );
  $('boot').textContent = `MicroPython ${about.micropython} runs in this browser.`;
  $('real').hidden = false;
  $('idle').hidden = !config.broker || Boolean(config.door);
  const names = await retry(() => board.to.experiments());
  if (!names.length) {
    showProblem('The fleet has no published experiment at the moment.');
    return;
  }
  await acquireLock(ledger, () => showProblem('This board is in use in another tab of this browser. This tab will take over when that one is closed.'));
  board.save = await mirrorOnDisk(ledger, board.storage);
  $('experiment').replaceChildren(...names.map((name) => element('option', { value: name }, board.about[name]?.title ?? name)));
  $('experiment').value = names.includes(config.experiment) ? config.experiment : names[0];
  $('question').hidden = false;
  await choose($('experiment').value);
}

$('experiment').addEventListener('change', () => {
  $('message').textContent = '';
  choose($('experiment').value).catch(failed);
});
$('form').addEventListener('submit', (event) => {
  event.preventDefault();
  reportReading(false).catch(failed);
});
$('until').addEventListener('click', () => reportReading(true).catch(failed));
$('crowd-form').addEventListener('submit', (event) => {
  event.preventDefault();
  if (takesPart(board)) sendMany(board).catch(failed);
});
$('population').addEventListener('change', () => ($('own-field').hidden = $('population').value !== 'own'));
$('vectors').addEventListener('click', checkVectors);
$('new').addEventListener('click', newBoard);
$('problem-new').addEventListener('click', newBoard);

/** Handle a click on yes or no. */
function handleAnswer(yes) {
  const waiting = board.state.outbox.length;
  try {
    answer(board, yes);
  } catch (error) {
    if (!(error instanceof BoardError)) throw error;
    board.state = board.call('state');
    showProblem(lockedMessage(error.message), true);
  }
  if (!takesPart(board)) {
    stop.abort();
    stop = new AbortController();
    $('cancel').click();
    if (waiting) setSentText('Dropped, because this board no longer takes part.');
  }
  $('message').textContent = '';
  showState();
  $('consent-title').focus();
  board.save().catch(failed);
}
$('yes').addEventListener('click', () => handleAnswer(true));
$('no').addEventListener('click', () => handleAnswer(false));
let redrawTimer = 0;
window.addEventListener('resize', () => {
  clearTimeout(redrawTimer);
  redrawTimer = setTimeout(() => board.view?.refresh(), 200);
});
setInterval(() => {
  if (board.to?.broker && !document.hidden && !$('view').hidden) board.view.refresh();
}, 5000);

function failed(error) {
  console.error(error);
  $('boot').textContent = `Something went wrong: ${error.message}`;
}
start().catch(failed);
